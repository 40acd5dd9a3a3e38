// When operations run.
//
// An operation runs after those before it in its stream and after the moments that it names. All of
// those were enqueued earlier, so threads that wait for each other's operations cannot do so in a
// circle.
//
// Thread-safety: the driver's lock is held; it may be given up meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver.h"

namespace anabranch::cuda_stub {

// So many operations may wait in a stream, as in the queues of a device; beyond, the oldest run.
inline constexpr std::size_t kQueueDepth = 1024;

// Appends to a stream, or to what it captures, where `after` has no meaning. `about` is told which
// stream it was. Returns the error of a device that is lost by now;
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT where nothing was appended, because of captures that the
// legacy default stream would disturb.
CUresult submit(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream, Work work,
                std::string& about, std::vector<Moment> after = {});

// Runs what has to run before that moment.
void run_until(Driver& driver, Lock& lock, Moment moment);

// Runs everything that is enqueued by now: of one stream, of all streams of a device, of all.
void run_stream(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream);
void run_device(Driver& driver, Lock& lock, int device);
void run_everything(Driver& driver, Lock& lock);

// Runs one operation of the stream, if there is one, so that who polls gets on. Returns whether the
// moment had passed before.
bool poll(Driver& driver, Lock& lock, Moment moment);

}  // namespace anabranch::cuda_stub
