// First stage of the pipeline: ids become keys, and the lines where they are looked for are
// fetched.
//
// Included by the kernels alone; see kernel.h on the unnamed namespace.
#pragma once

#include "store/lookup/blocks.h"
#include "store/lookup/gathering.h"

namespace anabranch::store::lookup {
namespace {

class Filling {
 public:
  explicit Filling(const Run& run) noexcept : run_(run), cursor_{} {}

  // Fills a block, feature after feature; it stays empty behind the last id. False: refused.
  bool fill(Block& block, Refusal& refusal) noexcept {
    block.ids = 0;
    block.pieces = 0;
    block.late = 0;
    while (block.ids < kBlock) {
      if (cursor_.position == cursor_.count) {
        if (next_ == run_.feature_count) break;
        if (!open(refusal)) return false;
      } else if (!add(block, refusal)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool open(Refusal& refusal) noexcept {
    const Feature& feature = run_.features[next_];
    const std::int64_t rows = feature.side == Side::kRow ? run_.rows : run_.users;
    cursor_ = {next_, 0, rows * feature.max_length, 0, 0};
    if (feature.bag != BagForm::kFixed) {
      refusal = check_bags(feature, run_.inputs[next_], rows, cursor_.count);
      if (refusal.kind != Refusal::Kind::kNone) {
        refusal.feature = next_;
        return false;
      }
    }
    ++next_;
    return true;
  }

  bool add(Block& block, Refusal& refusal) noexcept {
    const Feature& feature = run_.features[cursor_.feature];
    const std::int64_t left = cursor_.count - cursor_.position;
    const int room = kBlock - block.ids;
    const int count = left < room ? static_cast<int>(left) : room;
    Piece& piece = block.piece[block.pieces++];
    piece = {cursor_.feature, cursor_.position, block.ids, block.ids + count, false, false};
    block.ids += count;
    const int good =
        gather(feature, run_.inputs[cursor_.feature], cursor_, count, block.keys + piece.begin);
    if (good != count) {
      refusal = {Refusal::Kind::kId, piece.feature, piece.position + good, 0};
      return false;
    }
    if (feature.has_padding) mark_padding(feature, block, piece);
    if (feature.table.is_dense()) {
      if (feature.policy == MissingPolicy::kOriginal &&
          !count_from_end(feature, block, piece, refusal)) {
        return false;
      }
      fetch_changed(feature.table, block, piece);
    } else {
      fetch_home(feature.table, block, piece);
    }
    return true;
  }

  static void mark_padding(const Feature& feature, Block& block, Piece& piece) noexcept {
    for (int id = piece.begin; id < piece.end; ++id) {
      const bool is_padding = block.keys[id] == feature.padding_key;
      block.kinds[id] = is_padding ? IdKind::kPadding : IdKind::kOrdinary;
      piece.padded |= is_padding;
    }
    piece.special = piece.padded;
  }

  static void fetch_home(const TableView& table, Block& block, Piece& piece) noexcept {
    const Group* const index = table.index;
    const std::uint64_t seed = table.seed;
    const std::uint64_t groups = table.groups;
    bool side = false;
    for (int id = piece.begin; id < piece.end; ++id) {
      const std::uint64_t key = block.keys[id];
      const Group* const home = index + home_group(key, seed, groups);
      fetch(home);
      block.home[id] = home;
      side |= is_side_key(key);
    }
    if (side) [[unlikely]]
      mark_side(block, piece);
  }

  static void mark_side(Block& block, Piece& piece) noexcept {
    for (int id = piece.begin; id < piece.end; ++id) {
      const IdKind kind = piece.padded ? block.kinds[id] : IdKind::kOrdinary;
      block.kinds[id] =
          kind == IdKind::kOrdinary && is_side_key(block.keys[id]) ? IdKind::kSide : kind;
    }
    piece.special = true;
  }

  // A dense id knows its row; only whether it changed has to be looked up.
  static void fetch_changed(const TableView& table, Block& block, const Piece& piece) noexcept {
    for (int id = piece.begin; id < piece.end; ++id) {
      // The address of a key that is out of range is fetched, not read.
      fetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(table.changed) +
                                          block.keys[id] / 64 * 8));
    }
  }

  // Dense ids as ONNX Gather takes them: those below 0 count from the end, others must be rows.
  static bool count_from_end(const Feature& feature, Block& block, const Piece& piece,
                             Refusal& refusal) noexcept {
    const std::uint64_t rows = feature.table.base_rows;
    for (int id = piece.begin; id < piece.end; ++id) {
      const auto asked = static_cast<std::int64_t>(block.keys[id]);
      if (asked < 0) block.keys[id] += rows;
      if (block.keys[id] < rows) [[likely]]
        continue;
      if (piece.padded && block.kinds[id] == IdKind::kPadding) continue;
      refusal = {Refusal::Kind::kMissing, piece.feature, piece.position + (id - piece.begin),
                 asked};
      return false;
    }
    return true;
  }

  const Run& run_;
  IdCursor cursor_;
  std::size_t next_ = 0;
};

}  // namespace
}  // namespace anabranch::store::lookup
