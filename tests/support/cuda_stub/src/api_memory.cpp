// Entry points that give out memory outside of streams, and tell what a pointer points to.
#include <string>

#include "capture.h"
#include "driver.h"
#include "execution.h"
#include "memory_budget.h"

using namespace anabranch::cuda_stub;

namespace {

CUresult allocate_now(const char* name, void** memory, std::size_t bytes, MemoryKind kind) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock&, std::string& about) {
    about = "bytes=" + std::to_string(bytes);
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    return allocate(driver, *device, kind, nullptr, bytes, memory);
  });
}

CUresult free_now(const char* name, void* memory) {
  return call(name, CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    if (memory == nullptr) return CUDA_SUCCESS;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    // Operations under way are not waited for: who frees what they use has forgotten a wait.
    return free_memory(driver, memory);
  });
}

void** as_out(CUdeviceptr* pointer) { return reinterpret_cast<void**>(pointer); }

// Writes one attribute. Returns false for one that is not known.
bool write_attribute(const Driver& driver, const Allocation& allocation, CUpointer_attribute which,
                     CUdeviceptr pointer, void* out) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) =
          driver.devices[static_cast<std::size_t>(allocation.device)].context;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<CUmemorytype*>(out) =
          on_device(allocation.kind) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *static_cast<CUdeviceptr*>(out) = pointer;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<int*>(out) = allocation.kind == MemoryKind::kManaged ? 1 : 0;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = allocation.device;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<void**>(out) = allocation.begin;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(out) = allocation.bytes;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(out) = allocation.pool;
      return true;
    default:
      return false;
  }
}

// What a pointer to memory that the driver does not know has for an attribute.
void clear_attribute(CUpointer_attribute which, void* out) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<int*>(out) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = CU_DEVICE_INVALID;
      break;
    default:
      *static_cast<void**>(out) = nullptr;
  }
}

const Allocation* live_allocation(const Driver& driver, CUdeviceptr pointer) {
  const Allocation* allocation = driver.memory.find(reinterpret_cast<void*>(pointer));
  return allocation != nullptr && allocation->live ? allocation : nullptr;
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* memory, std::size_t bytes) {
  return allocate_now("cuMemAlloc", as_out(memory), bytes, MemoryKind::kDevice);
}

CUresult cuMemAllocManaged(CUdeviceptr* memory, std::size_t bytes, unsigned) {
  return allocate_now("cuMemAllocManaged", as_out(memory), bytes, MemoryKind::kManaged);
}

CUresult cuMemAllocHost_v2(void** memory, std::size_t bytes) {
  return allocate_now("cuMemAllocHost", memory, bytes, MemoryKind::kPinned);
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return allocate_now("cuMemHostAlloc", memory, bytes, MemoryKind::kPinned);
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
  return free_now("cuMemFree", reinterpret_cast<void*>(memory));
}

CUresult cuMemFreeHost(void* memory) { return free_now("cuMemFreeHost", memory); }

CUresult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  return call("cuMemHostRegister", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    return driver.memory.adopt(memory, bytes, device->ordinal) == nullptr
               ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
               : CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* memory) {
  return call("cuMemHostUnregister", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    const Allocation* allocation = driver.memory.find(memory);
    if (allocation == nullptr || allocation->kind != MemoryKind::kRegistered ||
        allocation->begin != memory) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    return free_memory(driver, memory);
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* memory, unsigned) {
  return call("cuMemHostGetDevicePointer", CallKind::kQuery,
              [=](Driver& driver, Lock&, std::string&) {
                *pointer = reinterpret_cast<CUdeviceptr>(memory);
                return live_allocation(driver, *pointer) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_SUCCESS;
              });
}

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *total = device->memory_bytes;
    *free = free_bytes(driver, *device);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr pointer) {
  return call("cuMemGetAddressRange", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const Allocation* allocation = live_allocation(driver, pointer);
    if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (begin != nullptr) *begin = reinterpret_cast<CUdeviceptr>(allocation->begin);
    if (bytes != nullptr) *bytes = allocation->bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr pointer) {
  return call("cuPointerGetAttribute", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const Allocation* allocation = live_allocation(driver, pointer);
    if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return write_attribute(driver, *allocation, which, pointer, out) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_NOT_SUPPORTED;
  });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** out,
                                CUdeviceptr pointer) {
  return call("cuPointerGetAttributes", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const Allocation* allocation = live_allocation(driver, pointer);
    for (unsigned index = 0; index < count; ++index) {
      if (allocation == nullptr) {
        clear_attribute(which[index], out[index]);
      } else if (!write_attribute(driver, *allocation, which[index], pointer, out[index])) {
        return CUDA_ERROR_NOT_SUPPORTED;
      }
    }
    return CUDA_SUCCESS;
  });
}
