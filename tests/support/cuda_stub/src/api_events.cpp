// Entry points about events.
#include <chrono>
#include <string>

#include "capture.h"
#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

CUresult record(const char* name, CUevent event_handle, CUstream stream_handle) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock& lock, std::string& about) {
    const std::shared_ptr<Event> event = driver.events.find(event_handle);
    const std::shared_ptr<Stream> stream = driver.stream_of(stream_handle);
    if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) {
      about = "stream=" + std::to_string(stream->id) + " captured";
      if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      capture_record(stream, *event);
      return CUDA_SUCCESS;
    }
    const Moment moment{stream, stream->enqueued + 1};
    const std::uint64_t recording = event->recordings + 1;
    const CUresult result = submit(driver, lock, stream, Mark{event, recording}, about);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return result;
    event->capture = 0;
    event->recordings = recording;
    event->moment = moment;
    return result;
  });
}

// Whether the last recording of an event lies in a capture, which asking about it invalidates.
bool is_captured(Driver& driver, const Event& event) {
  if (event.capture == 0) return false;
  if (const std::shared_ptr<Capture> capture = capture_of(driver, event)) capture->invalid = true;
  return true;
}

bool has_passed(const Event& event) { return event.passed == event.recordings; }

}  // namespace

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return call("cuEventCreate", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    if (driver.current_device() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    auto event = std::make_shared<Event>();
    event->flags = flags;
    *handle = driver.events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return call("cuEventDestroy", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    return driver.events.take(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return record("cuEventRecord", event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  if (flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
  return record("cuEventRecordWithFlags", event, stream);
}

CUresult cuEventSynchronize(CUevent handle) {
  return call("cuEventSynchronize", CallKind::kWork, [=](Driver& driver, Lock& lock, std::string&) {
    const std::shared_ptr<Event> event = driver.events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (is_captured(driver, *event)) return CUDA_ERROR_CAPTURED_EVENT;
    if (event->recordings > 0) run_until(driver, lock, event->moment);
    return driver.sticky;
  });
}

CUresult cuEventQuery(CUevent handle) {
  return call("cuEventQuery", CallKind::kWork, [=](Driver& driver, Lock& lock, std::string&) {
    const std::shared_ptr<Event> event = driver.events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (is_captured(driver, *event)) return CUDA_ERROR_CAPTURED_EVENT;
    const bool passed = event->recordings == 0 || poll(driver, lock, event->moment);
    if (driver.sticky != CUDA_SUCCESS) return driver.sticky;
    return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return call("cuEventElapsedTime", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Event> start = driver.events.find(start_handle);
    const std::shared_ptr<Event> end = driver.events.find(end_handle);
    if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const bool timed = ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0;
    if (!timed || start->recordings == 0 || end->recordings == 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!has_passed(*start) || !has_passed(*end)) return CUDA_ERROR_NOT_READY;
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->passed_at - start->passed_at).count();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent event_handle, unsigned) {
  return call("cuStreamWaitEvent", CallKind::kWork,
              [=](Driver& driver, Lock& lock, std::string& about) {
                const std::shared_ptr<Event> event = driver.events.find(event_handle);
                const std::shared_ptr<Stream> stream = driver.stream_of(stream_handle);
                if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                if (stream->capture != nullptr || capture_of(driver, *event) != nullptr) {
                  return capture_wait(driver, stream, *event);
                }
                if (event->capture != 0) return CUDA_ERROR_CAPTURED_EVENT;
                if (event->recordings == 0) return CUDA_SUCCESS;
                return submit(driver, lock, stream, Nothing{}, about, {event->moment});
              });
}
