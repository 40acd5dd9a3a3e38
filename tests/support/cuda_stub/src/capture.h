// Captures: what streams record instead of queueing it, and what must not happen meanwhile.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <memory>
#include <vector>

#include "driver.h"

namespace anabranch::cuda_stub {

CUresult begin_capture(Driver& driver, const std::shared_ptr<Stream>& stream,
                       CUstreamCaptureMode mode);

// Ends the capture whatever comes of it. `graph` is null where it came to nothing.
CUresult end_capture(Driver& driver, Stream& stream, CUgraph* graph);

// Adds a node behind what the capturing stream captured last.
CUresult capture_work(Stream& stream, Work work);

// An event is recorded on a capturing stream.
void capture_record(const std::shared_ptr<Stream>& stream, Event& event);

// A stream waits for an event, where one or both of them are captured: it joins the capture, or
// what the event stands for joins it.
CUresult capture_wait(Driver& driver, const std::shared_ptr<Stream>& stream, Event& event);

// The capture that the event was recorded into, null when it is none or over.
std::shared_ptr<Capture> capture_of(Driver& driver, const Event& event);

// The stream leaves the driver; a capture that it takes part in is invalid from then on.
void abandon_capture(Driver& driver, Stream& stream);

// Refuses a call that no capture allows to happen beside it, and invalidates those that forbid it
// to the calling thread.
CUresult refuse_while_capturing(Driver& driver);

// The captures on streams that wait for the legacy default stream of that device.
std::vector<std::shared_ptr<Capture>> blocking_captures(const Driver& driver, int device);
// Work goes to that default stream: they are invalid. Returns whether there were any.
bool invalidate_blocking_captures(const Driver& driver, int device);

// The calling thread's own attitude, CU_STREAM_CAPTURE_MODE_GLOBAL unless it was exchanged.
CUstreamCaptureMode& thread_capture_mode();

}  // namespace anabranch::cuda_stub
