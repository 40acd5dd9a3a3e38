// Handles are numbers that are given out once: one that was destroyed stays invalid for ever, where
// a pointer might come to name something new.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace anabranch::cuda_stub {

// Returns a number that nobody has had, above those that cuda.h gives a meaning (0, 1, 2).
inline std::uintptr_t next_handle() {
  static std::uintptr_t last = 0x10000;
  return last += 16;
}

// What the live handles of one kind stand for. Handle is a pointer type of cuda.h.
template <class Handle, class T>
class HandleTable {
 public:
  Handle add(std::shared_ptr<T> value) {
    const std::uintptr_t number = next_handle();
    values_.emplace(number, std::move(value));
    return reinterpret_cast<Handle>(number);
  }

  // Returns null for a handle that is not live.
  std::shared_ptr<T> find(Handle handle) const {
    const auto found = values_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == values_.end() ? nullptr : found->second;
  }

  // Ends a handle and returns what it stood for, null if it was not live.
  std::shared_ptr<T> take(Handle handle) {
    const auto found = values_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == values_.end()) return nullptr;
    std::shared_ptr<T> value = std::move(found->second);
    values_.erase(found);
    return value;
  }

  std::size_t size() const { return values_.size(); }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, value] : values_) visit(*value);
  }

  template <class Predicate>
  void erase_if(Predicate predicate) {
    std::erase_if(values_, [&](const auto& entry) { return predicate(*entry.second); });
  }

 private:
  std::map<std::uintptr_t, std::shared_ptr<T>> values_;
};

}  // namespace anabranch::cuda_stub
