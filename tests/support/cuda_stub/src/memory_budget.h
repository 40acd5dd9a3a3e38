// What a device and its pools have left.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <cstddef>
#include <memory>

#include "driver.h"

namespace anabranch::cuda_stub {

std::size_t free_bytes(const Driver& driver, const Device& device);

// Gives out poisoned memory, of a pool where its handle is not null. Returns
// CUDA_ERROR_OUT_OF_MEMORY where the device, the pool or the machine has not got so much.
CUresult allocate(Driver& driver, const Device& device, MemoryKind kind, CUmemoryPool pool,
                  std::size_t bytes, void** memory);

}  // namespace anabranch::cuda_stub
