// One table as a lookup sees it: plain pointers into a mapped base segment and a mapped generation.
//
// A hashed table finds rows through its index. A dense-id table (keys are 0..base_rows-1) reads
// base row `key` unless the bit of the key is set in `changed`; then `rvs[key]` is its newest
// version, and a chain that ends in 0 means the base row.
// Row numbers below `base_rows` lie in the base segment, the others in the arena of the generation.
//
// Thread-safety: any number of threads and processes read beside one writer; see docs/formats.md.
// Lifetime: the Generation that the view came from.
// Damaged memory: pointers and sizes were checked when the generation was mapped, words of shared
// memory cannot be. Who reads a row number from there compares it before use: with `rows_end()`
// before `row()`, and as `number - base_rows < arena_rows` (unsigned, so that base rows fail too)
// before `previous`. What fails is a missing key. Versions fall from link to link, so a loop ends
// where they do not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anabranch/store/rows.h"
#include "anabranch/store/slots.h"

namespace anabranch::store {

struct TableView {
  RowFormat format;
  std::uint32_t base_rows;
  std::uint32_t arena_rows;       // capacity
  const std::byte* base;          // row 0 of the base; may be null where base_rows is 0
  const std::byte* arena;         // row `base_rows`
  const std::uint64_t* previous;  // [arena_rows]: the rv that an arena row superseded
  std::uint64_t seed;
  std::uint64_t groups;          // 0: a dense-id table
  const Group* index;            // [groups + 1], the last one holds the side slots
  const std::uint64_t* changed;  // dense-id: bit per base row
  const std::uint64_t* rvs;      // dense-id: [base_rows]

  bool is_dense() const noexcept { return groups == 0; }
  // One past the last row number: at most 2^31, so it fits.
  std::uint32_t rows_end() const noexcept { return base_rows + arena_rows; }
  // `number` is less than rows_end().
  const std::byte* row(std::uint32_t number) const noexcept {
    const std::size_t stride = format.stride();
    return number < base_rows ? base + number * stride : arena + (number - base_rows) * stride;
  }
};

// The row of `key` that is visible at store version `version`, or null where there is none.
// The plain form of what the kernels do in blocks; portable, and what tests compare them with.
// Bounded: at most kMaxProbeGroups groups and as many undo links as the arena has rows.
const std::byte* find_row(const TableView& table, std::uint64_t key,
                          std::uint32_t version) noexcept;

// The rv that is visible at `version`, without bit 63; 0 where there is none, or a tombstone.
// A base row of a dense-id table has version kFirstVersion.
std::uint64_t find_rv(const TableView& table, std::uint64_t key, std::uint32_t version) noexcept;

}  // namespace anabranch::store
