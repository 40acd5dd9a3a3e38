// Entry points about objects that graphs keep alive.
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

using namespace anabranch::cuda_stub;

namespace {

// Moves up to `count` references away, the last ones first, and returns whether there were so many.
bool drop(std::vector<std::shared_ptr<UserObject>>& references, const UserObject* object,
          unsigned count) {
  for (std::size_t index = references.size(); index-- > 0 && count > 0;) {
    if (references[index].get() != object) continue;
    references.erase(references.begin() + static_cast<std::ptrdiff_t>(index));
    --count;
  }
  return count == 0;
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy, unsigned count,
                            unsigned) {
  return call("cuUserObjectCreate", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    if (count == 0) return CUDA_ERROR_INVALID_VALUE;
    driver.user_objects.erase_if(
        [](const UserObjectHandle& known) { return known.object.expired(); });
    const auto object =
        std::make_shared<UserObject>(DueDestructor{destroy, data}, driver.due_destructors);
    auto entry = std::make_shared<UserObjectHandle>();
    entry->object = object;
    entry->references.assign(count, object);
    *handle = driver.user_objects.add(std::move(entry));
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count) {
  return call("cuUserObjectRetain", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const auto entry = driver.user_objects.find(handle);
    const auto object = entry == nullptr ? nullptr : entry->object.lock();
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    entry->references.insert(entry->references.end(), count, object);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned count) {
  return call("cuUserObjectRelease", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
    const auto entry = driver.user_objects.find(handle);
    if (entry == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool enough = drop(entry->references, entry->object.lock().get(), count);
    return enough ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count,
                                 unsigned flags) {
  return call("cuGraphRetainUserObject", CallKind::kWork, [=](Driver& driver, Lock&, std::string&) {
    const std::shared_ptr<Graph> graph = driver.graphs.find(graph_handle);
    const auto entry = driver.user_objects.find(handle);
    const auto object = entry == nullptr ? nullptr : entry->object.lock();
    if (graph == nullptr || object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    graph->objects.insert(graph->objects.end(), count, object);
    if (flags == CU_GRAPH_USER_OBJECT_MOVE) drop(entry->references, object.get(), count);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  return call(
      "cuGraphReleaseUserObject", CallKind::kRelease, [=](Driver& driver, Lock&, std::string&) {
        const std::shared_ptr<Graph> graph = driver.graphs.find(graph_handle);
        const auto entry = driver.user_objects.find(handle);
        const auto object = entry == nullptr ? nullptr : entry->object.lock();
        if (graph == nullptr || object == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return drop(graph->objects, object.get(), count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      });
}
