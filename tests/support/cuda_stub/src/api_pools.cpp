// Entry points about memory pools, and memory in stream order.
//
// Memory is there as soon as its allocation was enqueued; it goes when its freeing has run.
#include <string>

#include "capture.h"
#include "driver.h"
#include "memory_budget.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

constexpr std::size_t kOfDevice = 0;
constexpr std::size_t kOfHost = 1;

Device* device_at(Driver& driver, int ordinal) {
  const bool known = ordinal >= 0 && static_cast<std::size_t>(ordinal) < driver.devices.size();
  return known ? &driver.devices[static_cast<std::size_t>(ordinal)] : nullptr;
}

// Returns the device that a location is of, the first one for the host.
Device* device_at(Driver& driver, const CUmemLocation& location) {
  return device_at(driver, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : 0);
}

std::size_t place_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? kOfDevice : kOfHost;
}

// Returns the pool behind one of the tables of a device, found by location.
CUresult pool_at(const char* name, CUmemoryPool* pool, const CUmemLocation& location,
                 std::array<CUmemoryPool, 2> Device::* table) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const Device* device = device_at(driver, location);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    *pool = (device->*table)[place_of(location)];
    return CUDA_SUCCESS;
  });
}

CUmemLocation on(CUdevice device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUresult allocate_in_order(Driver& driver, CUdeviceptr* memory, std::size_t bytes,
                           CUmemoryPool handle, const Stream& stream, std::string& about) {
  about = "stream=" + std::to_string(stream.id) + " bytes=" + std::to_string(bytes);
  if (stream.capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const std::shared_ptr<Pool> pool = driver.pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const MemoryKind kind = pool->on_device ? MemoryKind::kDevicePool : MemoryKind::kPinnedPool;
  return allocate(driver, driver.devices[static_cast<std::size_t>(pool->device)], kind, handle,
                  bytes, reinterpret_cast<void**>(memory));
}

bool is_flag(CUmemPool_attribute attribute) {
  return attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return pool_at("cuDeviceGetDefaultMemPool", pool, on(device), &Device::default_pools);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return pool_at("cuDeviceGetMemPool", pool, on(device), &Device::current_pools);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType) {
  return pool_at("cuMemGetDefaultMemPool", pool, *location, &Device::default_pools);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType) {
  return pool_at("cuMemGetMemPool", pool, *location, &Device::current_pools);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
  return call("cuDeviceSetMemPool", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    Device* device = device_at(driver, ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (driver.pools.find(pool) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    device->current_pools[kOfDevice] = pool;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return call("cuMemPoolCreate", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const Device* device = device_at(driver, properties->location);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    Pool made{place_of(properties->location) == kOfDevice, device->ordinal};
    made.max_bytes = properties->maxSize;
    *pool = driver.pools.add(std::make_shared<Pool>(std::move(made)));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return call("cuMemPoolDestroy", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    for (Device& device : driver.devices) {
      for (const std::size_t place : {kOfDevice, kOfHost}) {
        if (device.default_pools[place] == pool) return CUDA_ERROR_INVALID_VALUE;
        if (device.current_pools[place] == pool) {
          device.current_pools[place] = device.default_pools[place];
        }
      }
    }
    return driver.pools.take(pool) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return call("cuMemPoolGetAttribute", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Pool> pool = driver.pools.find(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    const auto set = pool->attributes.find(attribute);
    if (is_flag(attribute)) {
      *static_cast<int*>(value) = static_cast<int>(set->second);
    } else if (set != pool->attributes.end()) {
      *static_cast<cuuint64_t*>(value) = set->second;
    } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ||
               attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
      *static_cast<cuuint64_t*>(value) = pool->used;
    } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
               attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
      *static_cast<cuuint64_t*>(value) = pool->used_high;
    } else {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return call("cuMemPoolSetAttribute", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Pool> pool = driver.pools.find(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    if (is_flag(attribute)) {
      pool->attributes[attribute] = *static_cast<int*>(value) != 0 ? 1 : 0;
    } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      pool->attributes[attribute] = *static_cast<cuuint64_t*>(value);
    } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
               attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
      pool->used_high = pool->used;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t) {
  return call("cuMemPoolTrimTo", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    return driver.pools.find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc*, std::size_t) {
  return call("cuMemPoolSetAccess", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    return driver.pools.find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation*) {
  return call("cuMemPoolGetAccess", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver.pools.find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* memory, std::size_t bytes, CUstream handle) {
  return call("cuMemAllocAsync", CallKind::kWork, [=](Driver& driver, Lock&, std::string& about) {
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Device& device = driver.devices[static_cast<std::size_t>(stream->device)];
    return allocate_in_order(driver, memory, bytes, device.current_pools[kOfDevice], *stream,
                             about);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* memory, std::size_t bytes, CUmemoryPool pool,
                                 CUstream handle) {
  return call("cuMemAllocFromPoolAsync", CallKind::kWork,
              [=](Driver& driver, Lock&, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                return allocate_in_order(driver, memory, bytes, pool, *stream, about);
              });
}

CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream handle) {
  return call("cuMemFreeAsync", CallKind::kRelease,
              [=](Driver& driver, Lock& lock, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
                auto* begin = reinterpret_cast<void*>(memory);
                const Allocation* allocation = driver.memory.find(begin);
                if (allocation == nullptr || !allocation->live || allocation->begin != begin) {
                  return CUDA_ERROR_INVALID_VALUE;
                }
                return submit(driver, lock, stream, Freeing{begin}, about);
              });
}
