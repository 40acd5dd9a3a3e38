// Entry points about the driver, its devices and errors.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "driver.h"

using anabranch::cuda_stub::call;
using anabranch::cuda_stub::CallKind;
using anabranch::cuda_stub::Driver;
using anabranch::cuda_stub::Lock;

namespace {

constexpr int kDriverVersion = 13000;

const std::map<CUresult, const char*>& error_names() {
#define ANABRANCH_ERROR(name) \
  {                           \
    name, #name               \
  }
  static const std::map<CUresult, const char*> names{
      ANABRANCH_ERROR(CUDA_SUCCESS),
      ANABRANCH_ERROR(CUDA_ERROR_INVALID_VALUE),
      ANABRANCH_ERROR(CUDA_ERROR_OUT_OF_MEMORY),
      ANABRANCH_ERROR(CUDA_ERROR_NOT_INITIALIZED),
      ANABRANCH_ERROR(CUDA_ERROR_NO_DEVICE),
      ANABRANCH_ERROR(CUDA_ERROR_INVALID_DEVICE),
      ANABRANCH_ERROR(CUDA_ERROR_INVALID_CONTEXT),
      ANABRANCH_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE),
      ANABRANCH_ERROR(CUDA_ERROR_INVALID_HANDLE),
      ANABRANCH_ERROR(CUDA_ERROR_ILLEGAL_STATE),
      ANABRANCH_ERROR(CUDA_ERROR_NOT_FOUND),
      ANABRANCH_ERROR(CUDA_ERROR_NOT_READY),
      ANABRANCH_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
      ANABRANCH_ERROR(CUDA_ERROR_LAUNCH_FAILED),
      ANABRANCH_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
      ANABRANCH_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
      ANABRANCH_ERROR(CUDA_ERROR_NOT_PERMITTED),
      ANABRANCH_ERROR(CUDA_ERROR_NOT_SUPPORTED),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
      ANABRANCH_ERROR(CUDA_ERROR_CAPTURED_EVENT),
      ANABRANCH_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
      ANABRANCH_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
      ANABRANCH_ERROR(CUDA_ERROR_UNKNOWN)};
#undef ANABRANCH_ERROR
  return names;
}

bool is_device(const Driver& driver, CUdevice device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver.devices.size();
}

int attribute_value(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

CUresult cuInit(unsigned) {
  return call("cuInit", CallKind::kQuery, [](Driver& driver, Lock&, std::string&) {
    if (driver.devices.empty()) return CUDA_ERROR_NO_DEVICE;
    driver.initialized = true;
    return CUDA_SUCCESS;
  });
}

CUresult cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const auto found = error_names().find(error);
  *text = found == error_names().end() ? nullptr : found->second;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!driver.initialized) return CUDA_ERROR_NOT_INITIALIZED;
    *count = static_cast<int>(driver.devices.size());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!driver.initialized) return CUDA_ERROR_NOT_INITIALIZED;
    if (!is_device(driver, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return call("cuDeviceGetName", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(size), "Stub device %d", device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call("cuDeviceGetUuid", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  return call("cuDeviceGetPCIBusId", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return call("cuDeviceTotalMem", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = driver.devices[static_cast<std::size_t>(device)].memory_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call("cuDeviceGetAttribute", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_value(attribute);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call("cuDeviceCanAccessPeer", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    if (!is_device(driver, device) || !is_device(driver, peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
  });
}
