// Entry points about captures.
#include <string>
#include <utility>
#include <vector>

#include "capture.h"
#include "driver.h"

using namespace anabranch::cuda_stub;

namespace {

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return call("cuStreamBeginCapture", CallKind::kWork,
              [=](Driver& driver, Lock&, std::string& about) {
                const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                about = "stream=" + std::to_string(stream->id) + " mode=" + std::to_string(mode);
                return begin_capture(driver, stream, mode);
              });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  *graph = nullptr;
  CUgraph captured = nullptr;
  const CUresult result = call("cuStreamEndCapture", CallKind::kRelease,
                               [&](Driver& driver, Lock&, std::string& about) {
                                 const std::shared_ptr<Stream> stream = driver.stream_of(handle);
                                 if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                                 about = "stream=" + std::to_string(stream->id);
                                 return end_capture(driver, *stream, &captured);
                               });
  if (result == CUDA_SUCCESS) {
    *graph = captured;
  } else if (captured != nullptr) {
    Driver& driver = Driver::instance();
    Lock lock(driver.mutex);
    driver.graphs.take(captured);
    run_destructors(driver, lock);
  }
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call("cuStreamIsCapturing", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->legacy && !blocking_captures(driver, stream->device).empty()) {
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    *status = status_of(*stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** tails,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  return call("cuStreamGetCaptureInfo", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Stream> stream = driver.stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *status = status_of(*stream);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    const Capture& capture = *stream->capture;
    stream->reported_tails.clear();
    for (const std::size_t node : stream->tails) {
      stream->reported_tails.push_back(capture.graph->nodes[node].handle);
    }
    stream->reported_edges.assign(stream->tails.size(), CUgraphEdgeData{});
    if (id != nullptr) *id = capture.id;
    if (graph != nullptr) *graph = capture.handle;
    if (tails != nullptr) *tails = stream->reported_tails.data();
    if (edges != nullptr) *edges = stream->reported_edges.data();
    if (count != nullptr) *count = stream->reported_tails.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call("cuThreadExchangeStreamCaptureMode", CallKind::kQuery,
              [=](Driver&, Lock&, std::string&) {
                std::swap(*mode, thread_capture_mode());
                return CUDA_SUCCESS;
              });
}
