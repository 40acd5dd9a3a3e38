// Entry points about streams, but for captures.
#include <string>

#include "capture.h"
#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

// An entry point that asks something of a live stream.
template <class Body>
CUresult about_stream(const char* name, CUstream handle, Body body) {
  return call(name, CallKind::kQuery, [&](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    body(driver, *stream);
    return CUDA_SUCCESS;
  });
}

// Ends what a stream captures, if it does: none may be asked about what it has done.
bool invalidate_capture(const Stream& stream) {
  if (stream.capture == nullptr) return false;
  stream.capture->invalid = true;
  return true;
}

CUcontext context_of(const Driver& driver, const Stream& stream) {
  return driver.devices[static_cast<std::size_t>(stream.device)].context;
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  return call("cuStreamCreateWithPriority", CallKind::kWork,
              [=](Driver& driver, Lock&, std::string& about) {
                const Device* device = driver.current_device();
                if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
                const auto stream = driver.new_stream(device->ordinal, flags, priority);
                about = "stream=" + std::to_string(stream->id);
                *handle = driver.streams.add(stream);
                return CUDA_SUCCESS;
              });
}

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return call("cuStreamDestroy", CallKind::kRelease,
              [=](Driver& driver, Lock&, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.streams.take(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                about = "stream=" + std::to_string(stream->id);
                abandon_capture(driver, *stream);
                stream->destroyed = true;  // what it has to do is done all the same
                return CUDA_SUCCESS;
              });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return about_stream("cuStreamGetFlags", handle,
                      [=](Driver&, const Stream& stream) { *flags = stream.flags; });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return about_stream("cuStreamGetPriority", handle,
                      [=](Driver&, const Stream& stream) { *priority = stream.priority; });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return about_stream("cuStreamGetId", handle,
                      [=](Driver&, const Stream& stream) { *id = stream.id; });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return about_stream("cuStreamGetDevice", handle,
                      [=](Driver&, const Stream& stream) { *device = stream.device; });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return about_stream("cuStreamGetCtx", handle, [=](Driver& driver, const Stream& stream) {
    *context = context_of(driver, stream);
  });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  return about_stream("cuStreamGetCtx", handle, [=](Driver& driver, const Stream& stream) {
    *context = context_of(driver, stream);
    if (green != nullptr) *green = nullptr;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return call("cuStreamSynchronize", CallKind::kWork,
              [=](Driver& driver, Lock& lock, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                about = "stream=" + std::to_string(stream->id);
                if (invalidate_capture(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                if (stream->legacy && invalidate_blocking_captures(driver, stream->device)) {
                  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                }
                run_stream(driver, lock, stream);
                return driver.sticky;
              });
}

CUresult cuStreamQuery(CUstream handle) {
  return call("cuStreamQuery", CallKind::kWork,
              [=](Driver& driver, Lock& lock, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                about = "stream=" + std::to_string(stream->id);
                if (invalidate_capture(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                const bool passed = poll(driver, lock, {stream, stream->enqueued});
                if (driver.sticky != CUDA_SUCCESS) return driver.sticky;
                return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
              });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return call("cuLaunchHostFunc", CallKind::kWork,
              [=](Driver& driver, Lock& lock, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                return submit(driver, lock, stream, HostCall{function, data}, about);
              });
}
