// What tests may do to the stub, and ask of it. Plain C, for ctypes.
//
// Thread-safety: every function may be called from any thread, but not from host functions or
// twins.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

#pragma GCC visibility push(default)

// All that is live, and what waits to run. Bytes are those of memory.
struct CudaStubCounts {
  std::uint64_t contexts;
  std::uint64_t streams;
  std::uint64_t events;
  std::uint64_t captures;
  std::uint64_t graphs;
  std::uint64_t execs;
  std::uint64_t libraries;
  std::uint64_t pools;  // but for the default ones
  std::uint64_t user_objects;
  std::uint64_t pending_operations;
  std::uint64_t device_bytes;
  std::uint64_t device_pool_bytes;
  std::uint64_t pinned_bytes;
  std::uint64_t pinned_pool_bytes;
  std::uint64_t managed_bytes;
  std::uint64_t registered_bytes;
};

void cuda_stub_counts(CudaStubCounts* counts);

// 1: an operation runs when something forces it, 0: within the call that enqueued it. What waits to
// run runs first.
void cuda_stub_set_lazy(int lazy);
// Runs all that waits to run.
void cuda_stub_drain();
// Sets what every device has.
void cuda_stub_set_memory(std::size_t bytes);

// From the nth call on (1: the next one), `times` calls of an entry point, of any where the name is
// empty, fail with `error`; with `sticky`, the device is lost at the first of them.
void cuda_stub_fail(const char* entry_point, std::uint64_t nth, std::uint64_t times, int error,
                    int sticky);
void cuda_stub_clear_faults();
// So many calls there were, of an entry point, or of all of them where the name is empty.
std::uint64_t cuda_stub_calls(const char* entry_point);

// Loses the devices, with what they answer from now on; 0 brings them back.
void cuda_stub_set_lost(int error);
int cuda_stub_lost();

// Registers a twin of a kernel: what runs instead of it, and the sizes of its parameters.
void cuda_stub_register_kernel(const char* name,
                               void (*function)(const unsigned* grid, const unsigned* block,
                                                void** arguments),
                               std::size_t count, const std::size_t* sizes);

// Writes the trace with a closing 0 if it fits. Returns the bytes that it needs.
std::size_t cuda_stub_trace(char* text, std::size_t capacity);
void cuda_stub_clear_trace();

#pragma GCC visibility pop
}
