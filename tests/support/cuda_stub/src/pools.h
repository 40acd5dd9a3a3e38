// Memory pools: attributes, and how much of them is in use.
//
// Memory of a pool is not kept for its next use: what is freed is poisoned, as all memory.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "cuda_header.h"

namespace anabranch::cuda_stub {

struct Pool {
  bool on_device;
  int device;
  std::uint64_t max_bytes = 0;  // 0: no bound of its own
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  // Those of CUmemPool_attribute that can be set, as integers.
  std::map<CUmemPool_attribute, std::uint64_t> attributes{
      {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1},
      {CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1},
      {CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1},
      {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0}};

  void take(std::uint64_t bytes) {
    used += bytes;
    used_high = std::max(used_high, used);
  }
};

}  // namespace anabranch::cuda_stub
