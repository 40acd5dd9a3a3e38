#include "capture.h"

#include <algorithm>
#include <utility>

namespace anabranch::cuda_stub {
namespace {

void leave(Stream& stream) {
  stream.capture = nullptr;
  stream.tails.clear();
  stream.joined = true;
}

void forget(Driver& driver, const Capture& capture) {
  std::erase_if(driver.captures,
                [&](const std::shared_ptr<Capture>& one) { return one->id == capture.id; });
}

void merge(std::vector<std::size_t>& tails, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more) {
    if (std::find(tails.begin(), tails.end(), node) == tails.end()) tails.push_back(node);
  }
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult begin_capture(Driver& driver, const std::shared_ptr<Stream>& stream,
                       CUstreamCaptureMode mode) {
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = ++driver.last_capture_id;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->members = {stream};
  capture->graph = std::make_shared<Graph>();
  capture->handle = driver.graphs.add(capture->graph);
  driver.captures.push_back(capture);
  stream->capture = std::move(capture);
  stream->tails.clear();
  return CUDA_SUCCESS;
}

CUresult end_capture(Driver& driver, Stream& stream, CUgraph* graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->owner != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  for (const std::shared_ptr<Stream>& member : capture->members) {
    if (member.get() != &stream && !member->joined) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    leave(*member);
  }
  if (capture->invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  forget(driver, *capture);
  if (result == CUDA_SUCCESS) {
    *graph = capture->handle;
  } else {
    driver.graphs.take(capture->handle);
  }
  return result;
}

CUresult capture_work(Stream& stream, Work work) {
  if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream.tails = {stream.capture->graph->add(std::move(work), stream.tails)};
  ++stream.capture_serial;
  stream.joined = false;
  return CUDA_SUCCESS;
}

void capture_record(const std::shared_ptr<Stream>& stream, Event& event) {
  event.capture = stream->capture->id;
  event.captured_after = stream->tails;
  event.captured_stream = stream;
  event.captured_serial = stream->capture_serial;
}

std::shared_ptr<Capture> capture_of(Driver& driver, const Event& event) {
  const auto found = std::find_if(driver.captures.begin(), driver.captures.end(),
                                  [&](const auto& one) { return one->id == event.capture; });
  return found == driver.captures.end() ? nullptr : *found;
}

CUresult capture_wait(Driver& driver, const std::shared_ptr<Stream>& stream, Event& event) {
  const std::shared_ptr<Capture> capture = capture_of(driver, event);
  if (capture == nullptr) {
    // What happened before a capture is no part of it.
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture == nullptr) {
    stream->capture = capture;
    stream->tails = event.captured_after;
    capture->members.push_back(stream);
  } else if (stream->capture != capture) {
    capture->invalid = stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  } else {
    merge(stream->tails, event.captured_after);
  }
  ++stream->capture_serial;
  stream->joined = false;
  const std::shared_ptr<Stream> joined = event.captured_stream.lock();
  if (joined != nullptr && joined != stream && joined->capture_serial == event.captured_serial) {
    joined->joined = true;
  }
  return CUDA_SUCCESS;
}

void abandon_capture(Driver& driver, Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  if (capture->origin != &stream) {
    // One that was joined has done its part, and goes.
    if (!stream.joined) capture->invalid = true;
    std::erase_if(capture->members, [&](const auto& member) { return member.get() == &stream; });
    leave(stream);
    return;
  }
  for (const std::shared_ptr<Stream>& member : capture->members) leave(*member);
  forget(driver, *capture);
  driver.graphs.take(capture->handle);
}

CUresult refuse_while_capturing(Driver& driver) {
  const CUstreamCaptureMode own = thread_capture_mode();
  if (own == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const std::shared_ptr<Capture>& capture : driver.captures) {
    const bool mine = capture->owner == std::this_thread::get_id();
    const bool forbids = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                              : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                    own == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

std::vector<std::shared_ptr<Capture>> blocking_captures(const Driver& driver, int device) {
  std::vector<std::shared_ptr<Capture>> found;
  for (const std::shared_ptr<Capture>& capture : driver.captures) {
    const bool blocking = std::any_of(
        capture->members.begin(), capture->members.end(),
        [&](const auto& member) { return member->device == device && member->blocking(); });
    if (blocking) found.push_back(capture);
  }
  return found;
}

bool invalidate_blocking_captures(const Driver& driver, int device) {
  const std::vector<std::shared_ptr<Capture>> found = blocking_captures(driver, device);
  for (const std::shared_ptr<Capture>& capture : found) capture->invalid = true;
  return !found.empty();
}

}  // namespace anabranch::cuda_stub
