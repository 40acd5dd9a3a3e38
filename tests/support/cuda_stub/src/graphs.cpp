#include "graphs.h"

#include <queue>
#include <utility>

#include "handles.h"

namespace anabranch::cuda_stub {
namespace {

std::vector<std::size_t> latest_first(const std::vector<Node>& nodes) {
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::vector<std::size_t>> followers(nodes.size());
  std::priority_queue<std::size_t> ready;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    missing[index] = nodes[index].after.size();
    for (const std::size_t before : nodes[index].after) followers[before].push_back(index);
    if (missing[index] == 0) ready.push(index);
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t index = ready.top();
    ready.pop();
    order.push_back(index);
    for (const std::size_t follower : followers[index]) {
      if (--missing[follower] == 0) ready.push(follower);
    }
  }
  return order;
}

}  // namespace

std::size_t Graph::add(Work work, std::vector<std::size_t> after) {
  const auto handle = reinterpret_cast<CUgraphNode>(next_handle());
  nodes.push_back({handle, std::move(work), std::move(after)});
  return nodes.size() - 1;
}

std::size_t Graph::index_of(CUgraphNode handle) const {
  std::size_t index = 0;
  while (index < nodes.size() && nodes[index].handle != handle) ++index;
  return index;
}

std::shared_ptr<const Plan> make_plan(const Graph& graph) {
  return std::make_shared<const Plan>(Plan{graph.nodes, graph.objects, latest_first(graph.nodes)});
}

CUgraphExecUpdateResult compare(const Plan& current, const Plan& next) {
  if (current.nodes.size() != next.nodes.size()) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  for (std::size_t index = 0; index < current.nodes.size(); ++index) {
    if (current.nodes[index].after != next.nodes[index].after) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    if (current.nodes[index].work.index() != next.nodes[index].work.index()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace anabranch::cuda_stub
