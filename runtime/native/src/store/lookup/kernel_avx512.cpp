// The kernel "avx512"; CMakeLists.txt has its flags.
#include "store/lookup/pipeline.h"

namespace anabranch::store::lookup {

const Kernel kAvx512Kernel{"avx512", run_pipeline, choose};

}  // namespace anabranch::store::lookup
