// Host functions that stand for kernels, by the kernel's name.
//
// Thread-safety: the driver's lock is held, but for calling a twin.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace anabranch::cuda_stub {

// Does what a whole launch does. `grid` and `block` have three numbers each; `arguments` are
// pointers to copies of the values that the launch was given.
using TwinFunction = void (*)(const unsigned* grid, const unsigned* block, void** arguments);

struct KernelTwin {
  std::string name;
  TwinFunction function;
  std::vector<std::size_t> sizes;  // of the parameters, in bytes
};

class KernelTwins {
 public:
  // A later twin of the same name takes the place of the earlier one, for kernels looked up later.
  void add(KernelTwin twin) {
    std::string name = twin.name;
    twins_[std::move(name)] = std::make_shared<const KernelTwin>(std::move(twin));
  }
  // Returns null for a name that nobody registered.
  std::shared_ptr<const KernelTwin> find(const std::string& name) const {
    const auto found = twins_.find(name);
    return found == twins_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, std::shared_ptr<const KernelTwin>> twins_;
};

}  // namespace anabranch::cuda_stub
