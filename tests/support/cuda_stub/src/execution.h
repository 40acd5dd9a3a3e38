// Doing what an operation says, on plain memory.
//
// An access to memory that was freed, or beyond an allocation, loses the device with
// CUDA_ERROR_ILLEGAL_ADDRESS. On a lost device nothing runs but what frees memory.
//
// Thread-safety: the driver's lock is held; it is given up while host functions and twins run.
#pragma once

#include "driver.h"

namespace anabranch::cuda_stub {

void execute(Driver& driver, Lock& lock, const Work& work);

// Frees memory and takes it out of its pool. Returns CUDA_ERROR_INVALID_VALUE where none that is
// live begins there.
CUresult free_memory(Driver& driver, void* begin);

}  // namespace anabranch::cuda_stub
