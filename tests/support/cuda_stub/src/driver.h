// The state of the stub driver, and what every entry point does before and after its own part.
//
// Thread-safety: one lock guards all of it. It is given up only while host functions and twins of
// kernels run, and while a thread waits for an operation that another one is at.
// Invariant: no object that may own user objects dies without the lock.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "allocations.h"
#include "cuda_header.h"
#include "faults.h"
#include "graphs.h"
#include "handles.h"
#include "kernel_twins.h"
#include "pools.h"
#include "streams.h"
#include "trace.h"
#include "user_objects.h"

namespace anabranch::cuda_stub {

using Lock = std::unique_lock<std::mutex>;

enum class Mode {
  kLazy,   // an operation runs when something forces it
  kEager,  // an operation runs within the call that enqueued it
};

struct Device {
  int ordinal;
  std::size_t memory_bytes;
  int retained = 0;  // of the primary context
  CUcontext context;
  std::shared_ptr<Stream> legacy_stream;
  std::array<CUmemoryPool, 2> default_pools;  // of the device, of the host
  std::array<CUmemoryPool, 2> current_pools;
};

struct Library {
  std::vector<CUkernel> kernels;  // that were looked up in it; they go with it
};

struct Driver {
  // The process's driver; it lives until the process ends.
  static Driver& instance();

  Driver();

  std::mutex mutex;
  std::condition_variable progress;  // some operation is done

  bool initialized = false;
  Mode mode;
  CUresult sticky = CUDA_SUCCESS;  // of the lost device, which is all of them
  std::vector<Device> devices;
  AllocationTable memory;
  KernelTwins twins;
  Faults faults;
  Trace trace;
  DueDestructors due_destructors;

  HandleTable<CUstream, Stream> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUgraph, Graph> graphs;
  HandleTable<CUgraphExec, GraphExec> execs;
  HandleTable<CUmemoryPool, Pool> pools;
  HandleTable<CUuserObject, UserObjectHandle> user_objects;
  HandleTable<CUlibrary, Library> libraries;
  HandleTable<CUkernel, const KernelTwin> kernels;

  // Every stream with work to do, live or not, and the default streams.
  std::vector<std::shared_ptr<Stream>> all_streams;
  std::vector<std::shared_ptr<Capture>> captures;
  unsigned last_stream_id = 0;
  std::uint64_t last_capture_id = 0;

  std::shared_ptr<Stream> new_stream(int device, unsigned flags, int priority);
  // Returns what a handle of a stream stands for, the default ones included; null for no live one.
  std::shared_ptr<Stream> stream_of(CUstream handle);
  // Returns the device of the calling thread's current context; null where there is none.
  Device* current_device();
  // Loses the device: `error` is what it answers from now on, unless it was lost before.
  void lose(CUresult error, const std::string& why);
};

// The contexts that the calling thread pushed, the current one last.
std::vector<CUcontext>& context_stack();

// Whether the calling thread is in a host function or a twin: those may not call the driver.
bool& in_host_function();

enum class CallKind {
  kQuery,    // works on a lost device
  kWork,     // needs a device that is not lost
  kRelease,  // does its part even where it is to fail, as a real driver whose errors are older ones
};

// What an entry point is refused with before it does anything.
CUresult admit(Driver& driver, const char* name, CallKind kind);
// Runs destructors that are due, without the lock.
void run_destructors(Driver& driver, Lock& lock);
void trace_result(Driver& driver, const char* name, const std::string& about, CUresult result);

// An entry point: `body(driver, lock, about)` does its part and may say in `about` what it was
// about.
template <class Body>
CUresult call(const char* name, CallKind kind, Body body) {
  Driver& driver = Driver::instance();
  Lock lock(driver.mutex);
  CUresult result = admit(driver, name, kind);
  std::string about;
  if (result == CUDA_SUCCESS) {
    result = body(driver, lock, about);
  } else if (kind == CallKind::kRelease) {
    body(driver, lock, about);
  }
  trace_result(driver, name, about, result);
  run_destructors(driver, lock);
  return result;
}

}  // namespace anabranch::cuda_stub
