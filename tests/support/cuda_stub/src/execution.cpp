#include "execution.h"

#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace anabranch::cuda_stub {
namespace {

class HostFunctionScope {
 public:
  explicit HostFunctionScope(Lock& lock) : lock_(lock), before_(in_host_function()) {
    in_host_function() = true;
    lock_.unlock();
  }
  ~HostFunctionScope() {
    lock_.lock();
    in_host_function() = before_;
  }
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;

 private:
  Lock& lock_;
  bool before_;
};

class Execution {
 public:
  Execution(Driver& driver, Lock& lock) : driver_(driver), lock_(lock) {}

  void operator()(const Nothing&) {}

  void operator()(const Copy& copy) {
    if (lost() || !accessible(copy.to, copy.bytes, "copy")) return;
    if (copy.staged == nullptr && !accessible(copy.from, copy.bytes, "copy")) return;
    std::memmove(copy.to, copy.from, copy.bytes);
  }

  void operator()(const Fill& fill) {
    if (lost() || !accessible(fill.to, fill.count * fill.width, "fill")) return;
    for (std::size_t index = 0; index < fill.count; ++index) {
      std::memcpy(fill.to + index * fill.width, &fill.value, fill.width);
    }
  }

  void operator()(const HostCall& host) {
    if (lost()) return;
    const HostFunctionScope scope(lock_);
    host.function(host.data);
  }

  void operator()(const KernelCall& kernel) {
    if (lost()) return;
    std::vector<std::vector<std::byte>> values = kernel.arguments;
    std::vector<void*> pointers;
    for (std::vector<std::byte>& value : values) {
      // What has the size of a pointer and points into memory that was freed was meant to be one.
      void* pointer = nullptr;
      if (value.size() == sizeof pointer) {
        std::memcpy(&pointer, value.data(), sizeof pointer);
        if (!accessible(pointer, 0, kernel.twin->name.c_str())) return;
      }
      pointers.push_back(value.data());
    }
    const HostFunctionScope scope(lock_);
    kernel.twin->function(kernel.grid.data(), kernel.block.data(), pointers.data());
  }

  void operator()(const Freeing& freeing) {
    if (free_memory(driver_, freeing.memory) != CUDA_SUCCESS && !lost()) {
      driver_.lose(CUDA_ERROR_ILLEGAL_ADDRESS, "memory freed twice");
    }
  }

  void operator()(const Mark& mark) {
    if (mark.recording < mark.event->passed) return;
    mark.event->passed = mark.recording;
    mark.event->passed_at = std::chrono::steady_clock::now();
  }

  void operator()(const Replay& replay) {
    const Plan& plan = *replay.plan;
    const bool lazy = driver_.mode == Mode::kLazy;
    for (std::size_t place = 0; place < plan.nodes.size(); ++place) {
      std::visit(*this, plan.nodes[lazy ? plan.latest_first[place] : place].work);
    }
  }

 private:
  bool lost() const { return driver_.sticky != CUDA_SUCCESS; }

  bool accessible(const void* begin, std::size_t bytes, const char* what) {
    if (driver_.memory.access(begin, bytes) != Access::kIllegal) return true;
    driver_.lose(CUDA_ERROR_ILLEGAL_ADDRESS, std::string(what) + ": memory freed or out of bounds");
    return false;
  }

  Driver& driver_;
  Lock& lock_;
};

}  // namespace

const char* name_of(const Work& work) {
  static constexpr const char* kNames[] = {"nothing", "copy", "fill",  "host function",
                                           "kernel",  "free", "event", "graph"};
  static_assert(std::size(kNames) == std::variant_size_v<Work>);
  return kNames[work.index()];
}

void execute(Driver& driver, Lock& lock, const Work& work) {
  Execution execution(driver, lock);
  std::visit(execution, work);
}

CUresult free_memory(Driver& driver, void* begin) {
  const Allocation* found = driver.memory.find(begin);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = *found;
  switch (driver.memory.release(begin)) {
    case Released::kUnknown:
      return CUDA_ERROR_INVALID_VALUE;
    case Released::kOverrun:
      driver.lose(CUDA_ERROR_ILLEGAL_ADDRESS, "written past the end of an allocation");
      break;
    case Released::kFreed:
      break;
  }
  if (const std::shared_ptr<Pool> pool = driver.pools.find(allocation.pool)) {
    pool->used -= allocation.bytes;
  }
  return CUDA_SUCCESS;
}

}  // namespace anabranch::cuda_stub
