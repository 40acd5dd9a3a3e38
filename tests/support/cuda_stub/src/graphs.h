// Graphs, and the plans that launches run.
//
// A graph grows while it is captured; a plan is made from it once and never changes, so that
// launches under way go on with what they were given while the executable graph is updated or
// destroyed.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "user_objects.h"
#include "work.h"

namespace anabranch::cuda_stub {

struct Node {
  CUgraphNode handle;
  Work work;
  std::vector<std::size_t> after;  // indices of earlier nodes
};

struct Graph {
  std::vector<Node> nodes;  // each behind those that it waits for
  std::vector<std::shared_ptr<UserObject>> objects;

  // Returns the new node's index.
  std::size_t add(Work work, std::vector<std::size_t> after);
  // Returns the index of a node, nodes.size() for a handle of none.
  std::size_t index_of(CUgraphNode handle) const;
};

struct Plan {
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<UserObject>> objects;
  // The legal order that is farthest from the one of capture: a node whose wait was forgotten comes
  // before what it should have waited for.
  std::vector<std::size_t> latest_first;
};

struct GraphExec {
  std::shared_ptr<const Plan> plan;
  Moment last_launch;  // launches of one executable graph run one after another
};

std::shared_ptr<const Plan> make_plan(const Graph& graph);

// Tells whether a plan may take another's place, in the words of cuGraphExecUpdate.
CUgraphExecUpdateResult compare(const Plan& current, const Plan& next);

}  // namespace anabranch::cuda_stub
