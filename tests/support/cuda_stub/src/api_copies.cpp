// Entry points that copy and fill memory.
//
// Memory that the driver does not know is pageable: it is read within the call, and written before
// the call returns. In a capture it is taken as it is.
#include <algorithm>
#include <string>
#include <vector>

#include "capture.h"
#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

// Appends a copy to a stream, or to what it captures.
CUresult submit_copy(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream, void* to,
                     const void* from, std::size_t bytes, std::string& about) {
  about = "bytes=" + std::to_string(bytes);
  const Access target = driver.memory.access(to, bytes);
  const Access source = driver.memory.access(from, bytes);
  if (target == Access::kIllegal || source == Access::kIllegal) return CUDA_ERROR_INVALID_VALUE;
  const auto* begin = static_cast<const std::byte*>(from);
  Copy copy{static_cast<std::byte*>(to), begin, bytes, nullptr};
  const bool captured = stream->capture != nullptr;
  if (source == Access::kForeign && !captured) {
    auto staged = std::make_shared<const std::vector<std::byte>>(begin, begin + bytes);
    copy.from = staged->data();
    copy.staged = std::move(staged);
  }
  const CUresult result = submit(driver, lock, stream, std::move(copy), about);
  if (result != CUDA_SUCCESS || target != Access::kForeign || captured) return result;
  run_stream(driver, lock, stream);
  return driver.sticky;
}

CUresult copy_in_order(const char* name, void* to, const void* from, std::size_t bytes,
                       CUstream handle) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock& lock, std::string& about) {
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return submit_copy(driver, lock, stream, to, from, bytes, about);
  });
}

CUresult copy_now(const char* name, void* to, const void* from, std::size_t bytes) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock& lock, std::string& about) {
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    const std::shared_ptr<Stream> stream = device->legacy_stream;
    const CUresult result = submit_copy(driver, lock, stream, to, from, bytes, about);
    if (result != CUDA_SUCCESS) return result;
    run_stream(driver, lock, stream);
    return driver.sticky;
  });
}

CUresult submit_fill(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream,
                     const Fill& fill, std::string& about) {
  about = "bytes=" + std::to_string(fill.count * fill.width);
  if (driver.memory.access(fill.to, fill.count * fill.width) != Access::kLive) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(driver, lock, stream, fill, about);
}

CUresult fill_in_order(const char* name, const Fill& fill, CUstream handle) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock& lock, std::string& about) {
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return submit_fill(driver, lock, stream, fill, about);
  });
}

// Fills on the legacy default stream; like a device, it does not wait.
CUresult fill_now(const char* name, const Fill& fill) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock& lock, std::string& about) {
    const Device* device = driver.current_device();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult refused = refuse_while_capturing(driver)) return refused;
    return submit_fill(driver, lock, device->legacy_stream, fill, about);
  });
}

void* at(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

Fill fill_of(CUdeviceptr to, std::uint32_t value, std::size_t width, std::size_t count) {
  return {static_cast<std::byte*>(at(to)), value, width, count};
}

}  // namespace

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_in_order("cuMemcpyAsync", at(to), at(from), bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                              CUstream stream) {
  return copy_in_order("cuMemcpyHtoDAsync", at(to), from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_in_order("cuMemcpyDtoHAsync", to, at(from), bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                              CUstream stream) {
  return copy_in_order("cuMemcpyDtoDAsync", at(to), at(from), bytes, stream);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy_now("cuMemcpy", at(to), at(from), bytes);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  return copy_now("cuMemcpyHtoD", at(to), from, bytes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  return copy_now("cuMemcpyDtoH", to, at(from), bytes);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy_now("cuMemcpyDtoD", at(to), at(from), bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return fill_in_order("cuMemsetD8Async", fill_of(to, value, 1, count), stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count,
                          CUstream stream) {
  return fill_in_order("cuMemsetD16Async", fill_of(to, value, 2, count), stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return fill_in_order("cuMemsetD32Async", fill_of(to, value, 4, count), stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
  return fill_now("cuMemsetD8", fill_of(to, value, 1, count));
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count) {
  return fill_now("cuMemsetD32", fill_of(to, value, 4, count));
}
