// What a change is going to do to one table: an entry per key, found by the key's place.
//
// A place is where the key's rv lies: a slot number of the index, the two side slots counted behind
// the others, or a dense id. Nothing of this is in shared memory.
//
// Thread-safety: none.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "anabranch/store/writer.h"
#include "store/writer/ring.h"

namespace anabranch::store {

enum class Action : std::uint8_t {
  kWrite,
  kErase,
  kNothing,  // a key that the change itself brought in, and dropped again
};

struct Entry {
  std::uint64_t key;
  std::uint32_t place;
  std::uint32_t row;  // of the arena, its first row being 0
  Action action;
  bool fresh;     // the slot is empty: the key has to be written too
  bool was_live;  // the key has a row before the change
};

class Pending {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // Room for `more` entries: `add` neither allocates nor fails within it.
  void reserve(std::size_t more) {
    reserve_more(entries_, more);
    const std::size_t cells = std::bit_ceil(2 * (entries_.size() + more + 1));
    if (cells <= cells_.size()) return;
    // Keeps its memory from change to change, but is only as large as this change needs.
    cells_.assign(cells, Cell{});
    shift_ = 64 - std::countr_zero(cells);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) link(i);
  }

  // Number of the entry for `place`, or kNone.
  std::uint32_t find(std::uint32_t place) const noexcept {
    if (entries_.empty()) return kNone;
    for (std::size_t at = home(place);; at = (at + 1) & (cells_.size() - 1)) {
      const Cell& cell = cells_[at];
      if (cell.number == 0) return kNone;
      if (cell.place == place) return cell.number - 1;
    }
  }

  // Asks for the memory that `find` will look at.
  void prefetch(std::uint32_t place) const noexcept {
    if (!cells_.empty()) __builtin_prefetch(&cells_[home(place)], 1);
  }

  Entry& add(const Entry& entry) noexcept {
    entries_.push_back(entry);
    link(static_cast<std::uint32_t>(entries_.size() - 1));
    return entries_.back();
  }

  // Counts `entry` as what it does now: `times` is 1, or -1 before that changes.
  void tally(const Entry& entry, int times) noexcept {
    const auto step = static_cast<std::uint64_t>(static_cast<std::int64_t>(times));
    switch (entry.action) {
      case Action::kWrite:
        (entry.was_live ? counts.updated : counts.inserted) += step;
        break;
      case Action::kErase:
        counts.deleted += step;
        break;
      case Action::kNothing:
        counts.absent += step;
        break;
    }
  }

  void clear() noexcept {
    entries_.clear();
    cells_.clear();
    counts = {};
    fresh = 0;
  }

  std::span<const Entry> entries() const noexcept { return entries_; }
  Entry& operator[](std::uint32_t number) noexcept { return entries_[number]; }
  const Entry& operator[](std::uint32_t number) const noexcept { return entries_[number]; }
  std::uint64_t bytes() const noexcept {
    return entries_.capacity() * sizeof(Entry) + cells_.capacity() * sizeof(Cell);
  }

  ChangeCounts counts;
  std::uint64_t fresh = 0;  // entries that are

 private:
  struct Cell {
    std::uint32_t place;
    std::uint32_t number;  // of the entry, from 1; 0: free
  };

  std::size_t home(std::uint32_t place) const noexcept {
    return static_cast<std::size_t>(place * 0x9E3779B97F4A7C15ull >> shift_);
  }
  void link(std::uint32_t number) noexcept {
    std::size_t at = home(entries_[number].place);
    while (cells_[at].number != 0) at = (at + 1) & (cells_.size() - 1);
    cells_[at] = {entries_[number].place, number + 1};
  }

  std::vector<Entry> entries_;
  std::vector<Cell> cells_;  // open addressing, at most half full
  int shift_ = 0;
};

}  // namespace anabranch::store
