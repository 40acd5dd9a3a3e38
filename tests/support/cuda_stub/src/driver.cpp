#include "driver.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace anabranch::cuda_stub {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Default streams of the calling thread, by device.
std::vector<std::shared_ptr<Stream>>& thread_streams() {
  thread_local std::vector<std::shared_ptr<Stream>> streams;
  return streams;
}

}  // namespace

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

Driver& Driver::instance() {
  static Driver& driver = *new Driver;
  return driver;
}

Driver::Driver() {
  const char* text = std::getenv("ANABRANCH_CUDA_STUB_MODE");
  mode = text != nullptr && std::string(text) == "eager" ? Mode::kEager : Mode::kLazy;
  const auto memory_bytes =
      static_cast<std::size_t>(number_from("ANABRANCH_CUDA_STUB_MEMORY", std::uint64_t{1} << 30));
  const auto count = static_cast<int>(number_from("ANABRANCH_CUDA_STUB_DEVICES", 1));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Device device{};
    device.ordinal = ordinal;
    device.memory_bytes = memory_bytes;
    device.context = reinterpret_cast<CUcontext>(next_handle());
    for (const bool on_device : {true, false}) {
      const CUmemoryPool pool = pools.add(std::make_shared<Pool>(Pool{on_device, ordinal}));
      device.default_pools[on_device ? 0 : 1] = pool;
      device.current_pools[on_device ? 0 : 1] = pool;
    }
    device.legacy_stream = new_stream(ordinal, CU_STREAM_DEFAULT, 0);
    device.legacy_stream->legacy = true;
    devices.push_back(std::move(device));
  }
}

std::shared_ptr<Stream> Driver::new_stream(int device, unsigned flags, int priority) {
  std::erase_if(all_streams, [](const std::shared_ptr<Stream>& stream) {
    return stream->destroyed && stream->idle();
  });
  auto stream = std::make_shared<Stream>();
  stream->id = ++last_stream_id;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  all_streams.push_back(stream);
  return stream;
}

std::shared_ptr<Stream> Driver::stream_of(CUstream handle) {
  if (handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    return streams.find(handle);
  }
  const Device* device = current_device();
  if (device == nullptr) return nullptr;
  if (handle != CU_STREAM_PER_THREAD) return device->legacy_stream;
  std::vector<std::shared_ptr<Stream>>& own = thread_streams();
  const auto found = std::find_if(own.begin(), own.end(), [&](const auto& stream) {
    return stream->device == device->ordinal;
  });
  if (found != own.end()) return *found;
  own.push_back(new_stream(device->ordinal, CU_STREAM_DEFAULT, 0));
  return own.back();
}

Device* Driver::current_device() {
  if (context_stack().empty()) return nullptr;
  for (Device& device : devices) {
    if (device.context == context_stack().back()) return &device;
  }
  return nullptr;
}

void Driver::lose(CUresult error, const std::string& why) {
  trace.add("lost " + std::to_string(error) + ": " + why);
  if (sticky == CUDA_SUCCESS) sticky = error;
}

CUresult admit(Driver& driver, const char* name, CallKind kind) {
  if (const Fault* fault = driver.faults.on_call(name)) {
    if (fault->sticky) driver.lose(fault->error, name);
    return fault->error;
  }
  if (kind == CallKind::kWork && in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  return kind == CallKind::kQuery ? CUDA_SUCCESS : driver.sticky;
}

void run_destructors(Driver& driver, Lock& lock) {
  const DueDestructors due = std::exchange(driver.due_destructors, {});
  lock.unlock();
  for (const DueDestructor& destructor : due) destructor.function(destructor.data);
}

void trace_result(Driver& driver, const char* name, const std::string& about, CUresult result) {
  std::string line = name;
  if (!about.empty()) line.append(" ").append(about);
  if (result != CUDA_SUCCESS) line.append(" -> ").append(std::to_string(result));
  driver.trace.add(std::move(line));
}

}  // namespace anabranch::cuda_stub
