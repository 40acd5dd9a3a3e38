// One table of a generation as its writer keeps it: the shared words, and what only the writer
// knows about them.
//
// Thread-safety: one thread; readers of the shared words need no lock.
// Invariants: an arena row is in exactly one of: reachable from a place, named by a log record,
// pending, free. Shared words change in `apply` and `reclaim` alone; bytes and links of rows that
// nobody can reach also in the first half of a change, which takes all the memory that `apply`
// writes to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anabranch/store/writer.h"
#include "store/writer/generation_layout.h"
#include "store/writer/pending.h"
#include "store/writer/ring.h"

namespace anabranch::store {

class TableBooks {
 public:
  // Books of a table whose shared memory is zeroed, or whose index was filled with the base's keys.
  TableBooks(const SegmentTable& table, const Capacity& capacity, const TableRecord& record,
             const TableView& view, std::byte* memory);

  // First half of a change: see Change. What was done before a throw stays pending.
  void upsert(std::span<const std::uint64_t> keys, std::span<const std::byte> rows);
  void upsert(std::span<const std::uint64_t> keys, std::span<const float> values);
  void erase(std::span<const std::uint64_t> keys);
  // Every key changed after `version` gets what it had then.
  void restore(std::uint32_t version);
  // Second half: nothing of it fails.
  void apply(std::uint32_t version) noexcept;
  // Instead of it: everything pending is given back.
  void drop() noexcept;

  // Frees what was superseded at or below `floor`; slots that die get the tag `next_version`.
  std::uint64_t reclaim(std::uint32_t floor, std::uint32_t next_version);

  // Fills the index with the keys of the segment, all live. Returns the seed.
  std::uint64_t fill(const Segment& segment, const SegmentTable& table);
  void set_seed(std::uint64_t seed) noexcept { view_.seed = seed; }
  // Adds keys that have base rows, while nobody reads. Throws StoreFull.
  void put_base_rows(std::span<const std::uint64_t> keys, std::span<const std::uint32_t> rows);

  // Places, for who walks over all keys.
  std::uint64_t places() const noexcept;
  // Key and newest rv of a place; rv is 0 where nothing is live there or, with dense ids, where the
  // base row is still the newest.
  struct Newest {
    std::uint64_t key;
    std::uint64_t rv;
  };
  Newest newest_at(std::uint64_t place) const noexcept;
  // The newest rv of a key in the same sense.
  std::uint64_t newest_of(std::uint64_t key) const noexcept;

  // Whether all 64 places from `place` on, a multiple of 64, are base rows of dense ids. Reading
  // their rvs would take memory for them.
  bool is_untouched(std::uint64_t place) const noexcept;

  const TableView& view() const noexcept { return view_; }
  const Pending& pending() const noexcept { return pending_; }
  const std::string& name() const noexcept { return name_; }
  TableStats stats() const;
  std::uint64_t books_bytes() const noexcept;

 private:
  struct Record {  // of one applied key
    std::uint64_t old_rv;
    std::uint32_t version;  // that superseded old_rv
    std::uint32_t place;
  };
  struct Dead {
    std::uint32_t tag;
    std::uint32_t slot;
  };
  struct Place {
    std::uint32_t number;  // Pending::kNone: there is none
    bool fresh;
  };

  void reserve(std::size_t more);
  void prefetch(std::uint64_t key, std::uint64_t& home) const noexcept;
  void prefetch_pending(std::uint64_t key, std::uint64_t home) const noexcept;
  Place locate(std::uint64_t key, std::uint64_t home) const noexcept;
  void check_key_room() const;
  Entry& claim(std::uint64_t key, std::uint64_t home);
  Entry& add_entry(std::uint64_t key, Place place, Action action);
  void erase_one(std::uint64_t key, std::uint64_t home);
  std::uint32_t take_row();
  void widen_huge_pages() noexcept;

  bool is_side_place(std::uint32_t place) const noexcept { return place >= side_places_; }
  std::uint64_t& rv_word(std::uint32_t place) const noexcept;
  std::uint64_t rv_at(std::uint32_t place) const noexcept;  // relaxed, without the overflow bit
  bool is_live(std::uint64_t rv) const noexcept;
  void mark_overflow(std::uint64_t key, std::uint32_t slot) noexcept;
  void kill(std::uint32_t place, std::uint32_t tag) noexcept;
  // Whether it names a row of the arena, not of the base.
  bool in_arena(std::uint64_t rv) const noexcept {
    return rv != 0 && row_of(rv) >= view_.base_rows;
  }
  std::byte* arena_row(std::uint32_t row) const noexcept { return arena_ + row * stride_; }

  std::string name_;
  TableView view_;
  std::size_t stride_;
  Group* index_;
  std::uint64_t* changed_;
  std::uint64_t* rvs_;
  std::uint64_t* previous_;
  std::byte* arena_;
  std::uint64_t key_limit_;         // live keys
  std::uint64_t slots_;             // without the side slots
  std::uint64_t slot_limit_;        // used ones
  std::uint64_t side_places_;       // first of them; beyond all places for dense ids
  std::uint64_t live_ = 0;          // keys
  std::uint64_t used_slots_ = 0;    // live, tombstoned, dead
  std::uint64_t retired_rows_ = 0;  // arena rows that the log names
  std::uint32_t rows_begun_ = 0;    // arena rows that were ever taken
  std::byte* huge_from_;            // rows from here on get huge pages when they begin
  std::vector<std::uint32_t> free_rows_;
  Ring<Record> log_;  // ascending by version
  Ring<Dead> dead_;   // ascending by tag
  Pending pending_;
};

}  // namespace anabranch::store
