// Words of shared memory: one thread writes them while any number of processes read.
//
// Thread-safety: every access is one atomic of 8 bytes, in the memory order that the caller names.
#pragma once

#include <atomic>
#include <cstdint>

namespace anabranch::store {

inline std::uint64_t load(const std::uint64_t& word, std::memory_order order) noexcept {
  // atomic_ref takes no const; a load of 8 aligned bytes writes nothing, on read-only pages too.
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
  return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word)).load(order);
}

inline void store(std::uint64_t& word, std::uint64_t value, std::memory_order order) noexcept {
  std::atomic_ref<std::uint64_t>(word).store(value, order);
}

inline void set_bits(std::uint64_t& word, std::uint64_t bits, std::memory_order order) noexcept {
  std::atomic_ref<std::uint64_t>(word).fetch_or(bits, order);
}

}  // namespace anabranch::store
