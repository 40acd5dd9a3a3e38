#include "schedule.h"

#include <utility>

#include "capture.h"
#include "execution.h"

namespace anabranch::cuda_stub {
namespace {

// Adds what the legacy default stream and the blocking streams of its device wait for.
void wait_for_default_streams(Driver& driver, const Stream& stream, std::vector<Moment>& after) {
  const auto add = [&](const std::shared_ptr<Stream>& other) {
    if (!other->idle()) after.push_back({other, other->enqueued});
  };
  if (stream.blocking()) {
    add(driver.devices[static_cast<std::size_t>(stream.device)].legacy_stream);
  } else if (stream.legacy) {
    for (const std::shared_ptr<Stream>& other : driver.all_streams) {
      if (other->device == stream.device && other->blocking()) add(other);
    }
  }
}

CUresult enqueue(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream, Work work,
                 std::vector<Moment> after) {
  wait_for_default_streams(driver, *stream, after);
  stream->pending.push_back({std::move(work), std::move(after)});
  ++stream->enqueued;
  if (in_host_function()) return driver.sticky;
  if (driver.mode == Mode::kEager) {
    run_stream(driver, lock, stream);
  } else if (stream->pending.size() > kQueueDepth) {
    run_until(driver, lock, {stream, stream->done + 1});
  }
  return driver.sticky;
}

}  // namespace

CUresult submit(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream, Work work,
                std::string& about, std::vector<Moment> after) {
  about = "stream=" + std::to_string(stream->id) + " " + about;
  if (stream->capture != nullptr) {
    about += " captured";
    return capture_work(*stream, std::move(work));
  }
  if (stream->legacy && invalidate_blocking_captures(driver, stream->device)) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return enqueue(driver, lock, stream, std::move(work), std::move(after));
}

void run_until(Driver& driver, Lock& lock, Moment moment) {
  const std::shared_ptr<Stream>& stream = moment.stream;
  while (stream->done < moment.number) {
    if (stream->running) {
      driver.progress.wait(lock);
      continue;
    }
    stream->running = true;
    {
      const Operation operation = std::move(stream->pending.front());
      stream->pending.pop_front();
      for (const Moment& before : operation.after) run_until(driver, lock, before);
      driver.trace.add("run stream=" + std::to_string(stream->id) + " " + name_of(operation.work));
      execute(driver, lock, operation.work);
    }
    stream->running = false;
    ++stream->done;
    driver.progress.notify_all();
  }
}

void run_stream(Driver& driver, Lock& lock, const std::shared_ptr<Stream>& stream) {
  run_until(driver, lock, {stream, stream->enqueued});
}

void run_device(Driver& driver, Lock& lock, int device) {
  const std::vector<std::shared_ptr<Stream>> streams = driver.all_streams;
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (stream->device == device) run_stream(driver, lock, stream);
  }
}

void run_everything(Driver& driver, Lock& lock) {
  for (const Device& device : driver.devices) run_device(driver, lock, device.ordinal);
}

bool poll(Driver& driver, Lock& lock, Moment moment) {
  if (moment.stream->done >= moment.number) return true;
  run_until(driver, lock, {moment.stream, moment.stream->done + 1});
  return false;
}

}  // namespace anabranch::cuda_stub
