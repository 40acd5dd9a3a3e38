// The kernel "avx2"; CMakeLists.txt has its flags.
#include "store/lookup/pipeline.h"

namespace anabranch::store::lookup {

const Kernel kAvx2Kernel{"avx2", run_pipeline, choose};

}  // namespace anabranch::store::lookup
