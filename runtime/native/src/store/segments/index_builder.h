// Builds the index of one table while its keys come, and finds keys that came before.
//
// Rows are numbered in the order in which their keys came first. The index has the size that
// `most_keys` asks for until finish() fits it to the keys that came.
//
// Thread-safety: one thread at a time.
// Invariant: every key lies within kMaxProbeGroups groups from its home, behind groups that are
// full and marked so.
// Memory: 26.7 bytes per key of the index, and 8 per key in the order of their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "anabranch/store/slots.h"

namespace anabranch::store {

// Zeroed groups in memory of their own, in huge pages where the system has some.
class Groups {
 public:
  Groups() = default;
  // Throws std::bad_alloc.
  explicit Groups(std::uint64_t count);
  ~Groups();
  Groups(Groups&& other) noexcept : groups_(other.groups_) { other.groups_ = {}; }
  Groups& operator=(Groups&& other) noexcept {
    std::swap(groups_, other.groups_);
    return *this;
  }

  std::span<Group> span() const noexcept { return groups_; }

 private:
  std::span<Group> groups_;
};

class IndexBuilder {
 public:
  static constexpr int kMostSeeds = 8;

  // A seed that nobody can guess. Throws std::system_error.
  static std::uint64_t random_seed();

  // Throws std::bad_alloc.
  explicit IndexBuilder(std::uint64_t most_keys,
                        std::function<std::uint64_t()> next_seed = random_seed);

  // Sets rows[i] to the number of the row of keys[i]: the next one for a new key, else that of the
  // key that came before. At most `most_keys` distinct keys may come in all. Throws StoreFull where
  // keys crowd under each of kMostSeeds seeds.
  void add(std::span<const std::uint64_t> keys, std::span<std::uint32_t> rows);

  // Fits the index to the keys that came. Throws as add() does.
  void finish();

  std::span<const std::uint64_t> keys() const noexcept { return keys_; }  // in order of their rows
  std::uint64_t seed() const noexcept { return seed_; }
  std::uint64_t group_count() const noexcept { return groups_.span().size() - 1; }
  std::span<const Group> groups() const noexcept { return groups_.span(); }  // with the side slots

 private:
  static constexpr std::uint32_t kNoRoom = kTombstone;

  void prefetch(std::span<const std::uint64_t> keys, std::span<std::uint64_t> homes) noexcept;
  std::uint32_t place(std::uint64_t key, std::uint64_t home, std::uint32_t row) noexcept;
  bool place_all() noexcept;
  void rebuild(std::uint64_t group_count);

  std::function<std::uint64_t()> next_seed_;
  std::uint64_t seed_;
  Groups groups_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace anabranch::store
