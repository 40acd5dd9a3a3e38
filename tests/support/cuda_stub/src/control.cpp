#include "control.h"

#include <cstring>
#include <string>
#include <vector>

#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

std::uint64_t live_user_objects(const Driver& driver) {
  std::uint64_t live = 0;
  driver.user_objects.for_each(
      [&](const UserObjectHandle& handle) { live += handle.object.expired() ? 0 : 1; });
  return live;
}

}  // namespace

void cuda_stub_counts(CudaStubCounts* counts) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  *counts = {};
  for (const Device& device : driver.devices) counts->contexts += device.retained > 0 ? 1 : 0;
  counts->streams = driver.streams.size();
  counts->events = driver.events.size();
  counts->captures = driver.captures.size();
  counts->graphs = driver.graphs.size();
  counts->execs = driver.execs.size();
  counts->libraries = driver.libraries.size();
  counts->pools = driver.pools.size() - 2 * driver.devices.size();
  counts->user_objects = live_user_objects(driver);
  for (const auto& stream : driver.all_streams) {
    counts->pending_operations += stream->enqueued - stream->done;
  }
  counts->device_bytes = driver.memory.live_bytes(MemoryKind::kDevice);
  counts->device_pool_bytes = driver.memory.live_bytes(MemoryKind::kDevicePool);
  counts->pinned_bytes = driver.memory.live_bytes(MemoryKind::kPinned);
  counts->pinned_pool_bytes = driver.memory.live_bytes(MemoryKind::kPinnedPool);
  counts->managed_bytes = driver.memory.live_bytes(MemoryKind::kManaged);
  counts->registered_bytes = driver.memory.live_bytes(MemoryKind::kRegistered);
}

void cuda_stub_set_lazy(int lazy) {
  Driver& driver = Driver::instance();
  Lock lock(driver.mutex);
  run_everything(driver, lock);
  driver.mode = lazy != 0 ? Mode::kLazy : Mode::kEager;
  run_destructors(driver, lock);
}

void cuda_stub_drain() {
  Driver& driver = Driver::instance();
  Lock lock(driver.mutex);
  run_everything(driver, lock);
  run_destructors(driver, lock);
}

void cuda_stub_set_memory(std::size_t bytes) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  for (Device& device : driver.devices) device.memory_bytes = bytes;
}

void cuda_stub_fail(const char* entry_point, std::uint64_t nth, std::uint64_t times, int error,
                    int sticky) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  driver.faults.add({entry_point, nth, times, static_cast<CUresult>(error), sticky != 0});
}

void cuda_stub_clear_faults() {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  driver.faults.clear();
}

std::uint64_t cuda_stub_calls(const char* entry_point) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  return driver.faults.calls(entry_point);
}

void cuda_stub_set_lost(int error) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  driver.sticky = static_cast<CUresult>(error);
}

int cuda_stub_lost() {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  return driver.sticky;
}

void cuda_stub_register_kernel(const char* name,
                               void (*function)(const unsigned* grid, const unsigned* block,
                                                void** arguments),
                               std::size_t count, const std::size_t* sizes) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  driver.twins.add({name, function, std::vector<std::size_t>(sizes, sizes + count)});
}

std::size_t cuda_stub_trace(char* text, std::size_t capacity) {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  const std::string all = driver.trace.text();
  if (all.size() < capacity) std::memcpy(text, all.c_str(), all.size() + 1);
  return all.size() + 1;
}

void cuda_stub_clear_trace() {
  Driver& driver = Driver::instance();
  const Lock lock(driver.mutex);
  driver.trace.clear();
}
