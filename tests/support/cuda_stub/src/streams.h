// Streams: queues of operations, and what is captured instead of queued.
//
// Invariant: operations of a stream run one after another, in order; `running` says that some
// thread is at one, with or without the lock.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "graphs.h"
#include "work.h"

namespace anabranch::cuda_stub {

// A capture under way: one stream began it, others may have joined.
struct Capture {
  std::uint64_t id;
  CUstreamCaptureMode mode;
  std::thread::id owner;
  bool invalid = false;
  Stream* origin;
  std::vector<std::shared_ptr<Stream>> members;  // the origin is the first
  CUgraph handle;
  std::shared_ptr<Graph> graph;
};

struct Stream {
  unsigned id;
  int device;
  unsigned flags;
  int priority;
  bool legacy = false;
  bool destroyed = false;

  std::deque<Operation> pending;
  std::uint64_t enqueued = 0;
  std::uint64_t done = 0;
  bool running = false;

  std::shared_ptr<Capture> capture;  // null while nothing is captured
  std::vector<std::size_t> tails;    // nodes that the next one waits for
  std::uint64_t capture_serial = 0;  // grows with whatever it captures
  bool joined = true;                // another stream of the capture waits for its last node
  std::vector<CUgraphNode> reported_tails;
  std::vector<CUgraphEdgeData> reported_edges;

  // Whether it waits for the legacy default stream, and that for it.
  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
  bool idle() const { return done == enqueued; }
};

}  // namespace anabranch::cuda_stub
