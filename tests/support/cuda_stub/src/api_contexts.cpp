// Entry points about contexts: the primary one of each device.
#include <string>
#include <vector>

#include "capture.h"
#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

Device* device_at(Driver& driver, CUdevice device) {
  const bool known = device >= 0 && static_cast<std::size_t>(device) < driver.devices.size();
  return known ? &driver.devices[static_cast<std::size_t>(device)] : nullptr;
}

Device* device_of(Driver& driver, CUcontext context) {
  for (Device& device : driver.devices) {
    if (device.context == context) return &device;
  }
  return nullptr;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return call("cuDevicePrimaryCtxRetain", CallKind::kWork,
              [=](Driver& driver, Lock&, std::string&) {
                Device* device = device_at(driver, ordinal);
                if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
                ++device->retained;
                *context = device->context;
                return CUDA_SUCCESS;
              });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return call("cuDevicePrimaryCtxRelease", CallKind::kRelease,
              [=](Driver& driver, Lock&, std::string&) {
                Device* device = device_at(driver, ordinal);
                if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
                if (device->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
                --device->retained;
                return CUDA_SUCCESS;
              });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return call("cuDevicePrimaryCtxGetState", CallKind::kQuery,
              [=](Driver& driver, Lock&, std::string&) {
                const Device* device = device_at(driver, ordinal);
                if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
                *flags = 0;
                *active = device->retained > 0 ? 1 : 0;
                return CUDA_SUCCESS;
              });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return call("cuCtxPushCurrent", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (device_of(driver, context) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return call("cuCtxPopCurrent", CallKind::kQuery, [=](Driver&, Lock&, std::string&) {
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = context_stack().back();
    context_stack().pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (context != nullptr && device_of(driver, context) == nullptr) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    std::vector<CUcontext>& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

// No call that faults count: it only looks at what the thread set, and real drivers do not fail at
// it.
CUresult cuCtxGetCurrent(CUcontext* context) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  if (!driver.initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *context = context_stack().empty() ? nullptr : context_stack().back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* ordinal) {
  return call("cuCtxGetDevice", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *ordinal = device->ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* ordinal, CUcontext context) {
  return call("cuCtxGetDevice", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const Device* device =
        context == nullptr ? driver.current_device() : device_of(driver, context);
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *ordinal = device->ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  return call("cuCtxGetId", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const Device* device =
        context == nullptr ? driver.current_device() : device_of(driver, context);
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *id = static_cast<unsigned long long>(device->ordinal) + 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  return call("cuCtxGetStreamPriorityRange", CallKind::kQuery,
              [=](Driver& driver, Lock&, std::string&) {
                if (driver.current_device() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
                *lowest = kLowestPriority;
                *highest = kHighestPriority;
                return CUDA_SUCCESS;
              });
}

CUresult cuCtxSynchronize() {
  return call("cuCtxSynchronize", CallKind::kWork, [](Driver& driver, Lock& lock, std::string&) {
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    run_device(driver, lock, device->ordinal);
    return driver.sticky;
  });
}
