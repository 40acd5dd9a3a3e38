// The kernel "portable"; CMakeLists.txt has its flags.
#include "store/lookup/pipeline.h"

namespace anabranch::store::lookup {

const Kernel kPortableKernel{"portable", run_pipeline, choose};

}  // namespace anabranch::store::lookup
