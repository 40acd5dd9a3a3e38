// Entry points about graphs and executable graphs.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"
#include "schedule.h"

using namespace anabranch::cuda_stub;

namespace {

CUresult instantiate(const char* name, CUgraphExec* handle, CUgraph graph_handle) {
  return call(name, CallKind::kWork, [=](Driver& driver, Lock&, std::string& about) {
    const std::shared_ptr<Graph> graph = driver.graphs.find(graph_handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    about = "nodes=" + std::to_string(graph->nodes.size());
    *handle = driver.execs.add(std::make_shared<GraphExec>(GraphExec{make_plan(*graph), {}}));
    return CUDA_SUCCESS;
  });
}

CUgraphNodeType type_of(const Work& work) {
  if (std::holds_alternative<Copy>(work)) return CU_GRAPH_NODE_TYPE_MEMCPY;
  if (std::holds_alternative<Fill>(work)) return CU_GRAPH_NODE_TYPE_MEMSET;
  if (std::holds_alternative<HostCall>(work)) return CU_GRAPH_NODE_TYPE_HOST;
  if (std::holds_alternative<KernelCall>(work)) return CU_GRAPH_NODE_TYPE_KERNEL;
  if (std::holds_alternative<Replay>(work)) return CU_GRAPH_NODE_TYPE_GRAPH;
  return CU_GRAPH_NODE_TYPE_EMPTY;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* handle, unsigned) {
  return call("cuGraphCreate", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    *handle = driver.graphs.add(std::make_shared<Graph>());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return call("cuGraphDestroy", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    return driver.graphs.take(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return call("cuGraphGetNodes", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Graph> graph = driver.graphs.find(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodes != nullptr) {
      for (std::size_t index = 0; index < std::min(*count, graph->nodes.size()); ++index) {
        nodes[index] = graph->nodes[index].handle;
      }
    }
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return call("cuGraphNodeGetType", CallKind::kQuery, [=](Driver& driver, Lock&, std::string&) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    driver.graphs.for_each([&](const Graph& graph) {
      const std::size_t index = graph.index_of(handle);
      if (index == graph.nodes.size()) return;
      *type = type_of(graph.nodes[index].work);
      result = CUDA_SUCCESS;
    });
    return result;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  return instantiate("cuGraphInstantiateWithFlags", exec, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  const CUresult result = instantiate("cuGraphInstantiateWithParams", exec, graph);
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return call("cuGraphExecDestroy", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    return driver.execs.take(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec_handle, CUgraph graph_handle,
                              CUgraphExecUpdateResultInfo* info) {
  return call("cuGraphExecUpdate", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<GraphExec> exec = driver.execs.find(exec_handle);
    const std::shared_ptr<Graph> graph = driver.graphs.find(graph_handle);
    if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<const Plan> next = make_plan(*graph);
    info->result = compare(*exec->plan, *next);
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    exec->plan = std::move(next);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return call("cuGraphUpload", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const bool known = driver.execs.find(exec) != nullptr && driver.stream_of(stream) != nullptr;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphLaunch(CUgraphExec exec_handle, CUstream stream_handle) {
  return call("cuGraphLaunch", CallKind::kWork,
              [=](Driver& driver, Lock& lock, std::string& about) {
                const std::shared_ptr<GraphExec> exec = driver.execs.find(exec_handle);
                const std::shared_ptr<Stream> stream = driver.stream_of(stream_handle);
                if (exec == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
                std::vector<Moment> after;
                const Moment last = exec->last_launch;
                if (last.stream != nullptr && last.stream->done < last.number)
                  after.push_back(last);
                const Moment moment{stream, stream->enqueued + 1};
                const CUresult result =
                    submit(driver, lock, stream, Replay{exec->plan}, about, std::move(after));
                if (stream->enqueued >= moment.number) exec->last_launch = moment;
                return result;
              });
}
