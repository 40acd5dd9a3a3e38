// Blocks of ids on their way through the pipeline.
//
// Included by the kernels alone; see kernel.h on the unnamed namespace.
#pragma once

#include "anabranch/store/table_view.h"

namespace anabranch::store::lookup {
namespace {

// Ids in flight per block: enough loads to fill the memory pipeline, few enough rows to stay in the
// first-level cache until they are used.
constexpr int kBlock = 16;

// Neighbouring ids of one feature.
struct Piece {
  std::size_t feature;
  std::int64_t position;  // of the first, among the feature's ids
  int begin;              // of the first, in the block
  int end;
  bool padded;   // some ids are the padding key
  bool special;  // some ids are no ordinary keys; see `kinds`
};

enum class IdKind : std::uint8_t { kOrdinary, kSide, kPadding };

struct Block {
  int ids = 0;
  int pieces = 0;
  int late = 0;
  Piece piece[kBlock];
  std::uint64_t keys[kBlock];
  IdKind kinds[kBlock];  // where the piece is special
  const Group* home[kBlock];
  const std::byte* rows[kBlock];  // null: padding in a bag
  // Keys that were not in their home group, which had overflowed.
  struct Late {
    int piece;
    int id;
  } later[kBlock];
};

[[gnu::always_inline]] inline void fetch(const void* line) noexcept { __builtin_prefetch(line); }

// Rows are fetched into the second-level cache: a first-level cache has few places for lines that
// are on their way, and many rows of several lines each would hold all of them.
[[gnu::always_inline]] inline void fetch_row(const std::byte* row, std::uint32_t lines) noexcept {
  for (std::uint32_t line = 0; line < lines; ++line) __builtin_prefetch(row + line * 64, 0, 2);
}

}  // namespace
}  // namespace anabranch::store::lookup
