#include "faults.h"

namespace anabranch::cuda_stub {

const Fault* Faults::on_call(const std::string& entry_point) {
  ++all_calls_;
  ++calls_[entry_point];
  const Fault* hit = nullptr;
  for (Fault& fault : pending_) {
    if (!fault.entry_point.empty() && fault.entry_point != entry_point) continue;
    if (fault.nth > 1) {
      --fault.nth;
    } else if (hit == nullptr) {
      hit_ = fault;
      hit = &hit_;
      --fault.times;
    }
  }
  std::erase_if(pending_, [](const Fault& fault) { return fault.times == 0; });
  return hit;
}

std::uint64_t Faults::calls(const std::string& entry_point) const {
  if (entry_point.empty()) return all_calls_;
  const auto found = calls_.find(entry_point);
  return found == calls_.end() ? 0 : found->second;
}

}  // namespace anabranch::cuda_stub
