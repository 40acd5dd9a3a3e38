// A generation: the mutable half of a store in shared memory, of which one process is the writer.
//
// For each table of a segment it holds the index (a copy of the segment's, which then changes), an
// arena for rows that came later, and the undo links of those rows. Base rows stay in the segment.
// A generation lives until the last process has unmapped it; a new one takes its place when it is
// full, or when its writer died. Byte layout and memory order: docs/formats.md, "Generations".
//
// Thread-safety: a Generation may be read from any thread and process beside its writer.
// Invariant: no read leaves the two mappings, whatever the shared memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "anabranch/store/segment.h"
#include "anabranch/store/table_view.h"

namespace anabranch::store {

// Room that one table gets.
struct Capacity {
  std::uint32_t arena_rows;  // rows beside those of the base: updated, inserted, deleted ones
  // Hashed tables: distinct keys at most, those of the base counted. The index has a load of 0.6
  // with so many; deleted keys may add to it, up to 0.75, until readers have moved on.
  std::uint32_t keys;
};

// What a reader has of a store: a mapped generation over its segment.
class Generation {
 public:
  // Maps the memory behind `fd`, read-only; the descriptor stays the caller's. `populate`: fault
  // every used page in now. Throws Damaged or Foreign where it does not belong to `segment` or does
  // not lie inside, and std::system_error.
  static std::shared_ptr<const Generation> map(int fd, std::shared_ptr<const Segment> segment,
                                               bool populate = true);
  virtual ~Generation() = default;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  std::span<const TableView> tables() const noexcept { return tables_; }
  const Segment& segment() const noexcept { return *segment_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // as reserved, touched or not

 protected:
  Generation(std::shared_ptr<const Segment> segment, std::vector<TableView> tables,
             std::uint64_t bytes)
      : segment_(std::move(segment)), tables_(std::move(tables)), bytes_(bytes) {}

  std::shared_ptr<const Segment> segment_;
  std::vector<TableView> tables_;
  std::uint64_t bytes_;
};

}  // namespace anabranch::store
