// Fills an index that nobody reads yet.
//
// Thread-safety: none; plain accesses, since the memory is not shared so far.
#pragma once

#include <cstdint>
#include <span>

#include "anabranch/store/segment.h"
#include "anabranch/store/slots.h"

namespace anabranch::store {

class IndexFiller {
 public:
  IndexFiller(Group* index, std::uint64_t groups, std::uint64_t seed)
      : index_(index), groups_(groups), seed_(seed) {}

  enum class Put { kDone, kPresent, kTooFar };
  // Adds a key that lies in the groups; `home` is its home group.
  Put put(std::uint64_t key, std::uint64_t rv, std::uint64_t home) noexcept;
  // As `put`, for any key.
  Put put(std::uint64_t key, std::uint64_t rv) noexcept;
  // Adds keys[i] with row first_row + i, for all; stops at the first that does not go in.
  Put put_all(std::span<const std::uint64_t> keys, std::uint32_t first_row) noexcept;

 private:
  Group* index_;
  std::uint64_t groups_;
  std::uint64_t seed_;
};

// Fills the index of `table` (`groups` + 1 groups of zeros) with the keys of the segment's: copied
// and checked slot by slot where it has as many groups, built anew elsewhere. Returns the seed.
// Throws Damaged where the segment contradicts itself, StoreFull where keys crowd under every seed
// that was tried.
std::uint64_t fill_index(const Segment& segment, const SegmentTable& table, Group* index,
                         std::uint64_t groups);

// A seed that nobody can guess.
std::uint64_t random_seed();

}  // namespace anabranch::store
