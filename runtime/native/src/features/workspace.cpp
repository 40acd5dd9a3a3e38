#include "features/workspace.h"

namespace anabranch::features {
namespace {

constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

}  // namespace

Workspace& Workspace::of_thread() {
  thread_local Workspace workspace;
  return workspace;
}

void Workspace::trim() {
  const std::size_t read = storage.ints.capacity() * sizeof(std::int64_t) +
                           storage.floats.capacity() * sizeof(float) +
                           storage.strings.capacity() * sizeof(std::string_view) +
                           storage.weights.capacity() * sizeof(float);
  storage.texts.clear();
  if (read + made.capacity_bytes() + spare.capacity_bytes() > kKeptBytes) *this = Workspace();
}

}  // namespace anabranch::features
