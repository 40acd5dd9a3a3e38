// What a stream or a node of a graph does, and when.
//
// Values only: executing them is execution.h's, ordering them schedule.h's.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "cuda_header.h"
#include "kernel_twins.h"

namespace anabranch::cuda_stub {

struct Event;
struct Plan;
struct Stream;

// The moment after operation `number` of a stream; number 0 is before all of them.
struct Moment {
  std::shared_ptr<Stream> stream;
  std::uint64_t number = 0;
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
  std::shared_ptr<const std::vector<std::byte>> staged;  // owns `from` where the call took a copy
};

struct Fill {
  std::byte* to;
  std::uint32_t value;
  std::size_t width;  // bytes of `value` that are repeated: 1, 2 or 4
  std::size_t count;
};

struct HostCall {
  CUhostFn function;
  void* data;
};

struct KernelCall {
  std::shared_ptr<const KernelTwin> twin;
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  std::vector<std::vector<std::byte>> arguments;
};

// Frees memory in stream order.
struct Freeing {
  void* memory;
};

// Tells an event that it has come to pass.
struct Mark {
  std::shared_ptr<Event> event;
  std::uint64_t recording;
};

// Runs a whole graph.
struct Replay {
  std::shared_ptr<const Plan> plan;
};

// Nothing: an operation that is only there for what it waits for.
struct Nothing {};

using Work = std::variant<Nothing, Copy, Fill, HostCall, KernelCall, Freeing, Mark, Replay>;

// Returns a word for traces.
const char* name_of(const Work& work);

struct Operation {
  Work work;
  std::vector<Moment> after;  // beside those before it in its own stream
};

struct Event {
  unsigned flags = 0;
  // How often it was recorded, and the moment of the last time; null where never, or in a capture.
  std::uint64_t recordings = 0;
  Moment moment;
  // When the recording of that number came to pass.
  std::uint64_t passed = 0;
  std::chrono::steady_clock::time_point passed_at;
  // Where it was last recorded into a capture: which (an id, 0 for none), and after what.
  std::uint64_t capture = 0;
  std::vector<std::size_t> captured_after;
  std::weak_ptr<Stream> captured_stream;
  std::uint64_t captured_serial = 0;
};

}  // namespace anabranch::cuda_stub
