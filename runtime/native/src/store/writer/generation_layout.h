// Where everything lies in the memory of a generation, as docs/formats.md, "Generations", says.
//
// Thread-safety: plain values and pure functions.
// Units: bytes; offsets count from the beginning of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "anabranch/store/generation.h"

namespace anabranch::store {

struct GenerationHeader {
  char magic[8];
  std::uint32_t endian_tag;
  std::uint32_t format;
  std::uint64_t bytes;
  std::uint32_t tables;
  std::uint32_t checksum;  // CRC32C of header and table records, itself as 0
  std::uint64_t segment_bytes;
  std::uint64_t model_version;
  std::uint64_t reserved[2];
};
static_assert(sizeof(GenerationHeader) == 64);

// One table: what it must have in common with the segment's, and its sections.
struct TableRecord {
  std::uint32_t row_type;
  std::uint32_t dim;
  std::uint32_t key_kind;
  std::uint32_t base_rows;
  std::uint32_t arena_rows;
  std::uint32_t reserved;
  std::uint64_t seed;
  std::uint64_t groups;  // 0 for dense ids
  std::uint64_t off_index;
  std::uint64_t off_changed;
  std::uint64_t off_rvs;
  std::uint64_t off_undo;
  std::uint64_t off_arena;

  std::uint64_t index_bytes() const noexcept;
  std::uint64_t changed_bytes() const noexcept;
  std::uint64_t rvs_bytes() const noexcept;
  std::uint64_t undo_bytes() const noexcept;
  std::uint64_t arena_bytes() const noexcept;  // with a valid row format
};
static_assert(sizeof(TableRecord) == 80 && std::has_unique_object_representations_v<TableRecord>);

struct Extent {
  std::uint64_t begin;
  std::uint64_t end;
};

struct GenerationLayout {
  std::vector<TableRecord> tables;
  Extent index;  // all of one kind, in the order in which they lie
  Extent dense;  // changed and rvs
  Extent undo;
  Extent arena;
  std::uint64_t bytes;
};

// Places everything. Seeds are those of the segment. Throws std::invalid_argument for capacities
// that cannot be.
GenerationLayout plan_layout(const Segment& segment, std::span<const Capacity> capacities);

// Writes the header and the table records.
void write_header(std::span<std::byte> memory, const GenerationLayout& layout,
                  const Segment& segment);

// Reads them, and checks that every section lies in the memory and that the tables are those of
// `segment`. Throws Damaged and Foreign.
std::vector<TableRecord> read_header(std::span<const std::byte> memory, const Segment& segment);

// The table `number` of `segment` with the changes in `memory`.
TableView view_of(const Segment& segment, std::size_t number, const TableRecord& record,
                  const std::byte* memory);

}  // namespace anabranch::store
