#include "memory_budget.h"

namespace anabranch::cuda_stub {

std::size_t free_bytes(const Driver& driver, const Device& device) {
  const std::size_t live = driver.memory.live_bytes_on(device.ordinal);
  return device.memory_bytes > live ? device.memory_bytes - live : 0;
}

CUresult allocate(Driver& driver, const Device& device, MemoryKind kind, CUmemoryPool pool,
                  std::size_t bytes, void** memory) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (on_device(kind) && bytes > free_bytes(driver, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::shared_ptr<Pool> from = driver.pools.find(pool);
  if (from != nullptr && from->max_bytes != 0 &&
      (bytes > from->max_bytes || from->used > from->max_bytes - bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Allocation* allocation = driver.memory.allocate(kind, bytes, device.ordinal, pool);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (from != nullptr) from->take(bytes);
  *memory = allocation->begin;
  return CUDA_SUCCESS;
}

}  // namespace anabranch::cuda_stub
