// Last stage of the pipeline: rows are converted and pooled into the output.
//
// Included by the kernels alone; see kernel.h on the unnamed namespace.
#pragma once

#include "store/lookup/blocks.h"
#include "store/lookup/kernel.h"

namespace anabranch::store::lookup {
namespace {

class Finishing {
 public:
  explicit Finishing(const Run& run) noexcept : run_(run) {}

  void finish(const Block& block) noexcept {
    for (int s = 0; s < block.pieces; ++s) {
      const Piece& piece = block.piece[s];
      if (!open_ || piece.feature != feature_) enter(piece.feature);
      const Feature& feature = run_.features[piece.feature];
      if (feature.direct) {
        feature.copy(block.rows + piece.begin, piece.end - piece.begin, feature.table.format.dim,
                     out_ + piece.position * step_, step_);
      } else {
        cut(feature, block, piece);
      }
    }
  }

  // Writes what the last features leave empty.
  void close() noexcept {
    for (std::size_t f = open_ ? feature_ + 1 : 0; f < run_.feature_count; ++f) begin(f);
  }

 private:
  // Features between the last one and this have no ids, but rows.
  void enter(std::size_t feature) noexcept {
    for (std::size_t f = open_ ? feature_ + 1 : 0; f <= feature; ++f) begin(f);
  }

  void begin(std::size_t number) noexcept {
    const Feature& feature = run_.features[number];
    feature_ = number;
    open_ = true;
    if (feature.broadcast) {
      out_ = run_.shared.data + feature.offset;
      step_ = run_.shared.stride;
    } else {
      const OutputBuffer& buffer = run_.outputs[feature.buffer];
      out_ = static_cast<std::byte*>(buffer.data) + feature.offset;
      step_ = buffer.stride * (feature.output == OutputType::kF32 ? 4 : 2);
    }
    rows_ = feature.side == Side::kRow ? run_.rows : run_.users;
    row_ = 0;
    bag_begin_ = 0;
    if (feature.direct || rows_ == 0) return;
    open_bag(feature);
    skip_empty();
  }

  void open_bag(const Feature& feature) noexcept {
    bag_end_ = bag_begin_ + ids_of_bag(feature, run_.inputs[feature_]);
    pooled_ = 0;
    weight_ = 0;
  }

  // Ids of the bag of `row_`. They were checked, but another thread may have rewritten them since:
  // what cannot be counts as none, so that such rows are wrong, but lie where they should.
  std::int64_t ids_of_bag(const Feature& feature, const FeatureInput& input) const noexcept {
    if (feature.bag == BagForm::kFixed) return feature.max_length;
    std::uint64_t ids;  // unsigned, so that negative ones are too many
    if (feature.bag == BagForm::kLengths) {
      ids = static_cast<std::uint64_t>(entry(feature, input, row_));
    } else {
      const std::int64_t end =
          row_ + 1 < input.bag_count ? entry(feature, input, row_ + 1) : input.id_count;
      ids = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(bag_begin_);
    }
    return ids <= feature.max_length ? static_cast<std::int64_t>(ids) : 0;
  }

  static std::int64_t entry(const Feature& feature, const FeatureInput& input,
                            std::int64_t number) noexcept {
    // Read once, whatever the compiler would like.
    return feature.bag_type == IdType::kInt64
               ? __atomic_load_n(static_cast<const std::int64_t*>(input.bag) + number,
                                 __ATOMIC_RELAXED)
               : __atomic_load_n(static_cast<const std::int32_t*>(input.bag) + number,
                                 __ATOMIC_RELAXED);
  }

  void skip_empty() noexcept {
    const Feature& feature = run_.features[feature_];
    if (feature.direct) return;
    while (row_ < rows_ && bag_end_ == bag_begin_) {
      close_bag(feature, 0);
    }
  }

  // Zeros behind `ids` rows of a sequence, or in place of an empty bag; and on to the next bag.
  void close_bag(const Feature& feature, std::int64_t ids) noexcept {
    const std::int64_t wanted = feature.sequence ? feature.max_length : 1;
    if (ids < wanted) {
      __builtin_memset(out_ + row_ * step_ + ids * feature.row_bytes_out, 0,
                       static_cast<std::size_t>(wanted - ids) * feature.row_bytes_out);
    }
    next_bag(feature);
  }

  void next_bag(const Feature& feature) noexcept {
    bag_begin_ = bag_end_;
    if (++row_ < rows_) open_bag(feature);
  }

  // Cuts a piece into its bags.
  void cut(const Feature& feature, const Block& block, const Piece& piece) noexcept {
    std::int64_t position = piece.position;
    // Rewritten bags may leave ids behind the last row.
    for (int id = piece.begin; id < piece.end && row_ < rows_;) {
      const std::int64_t left = bag_end_ - position;
      const int room = piece.end - id;
      const int count = left < room ? static_cast<int>(left) : room;
      const bool last = left <= room;
      if (feature.sequence) {
        const std::int64_t begin = position - bag_begin_;
        feature.copy(block.rows + id, count, feature.table.format.dim,
                     out_ + row_ * step_ + begin * feature.row_bytes_out, feature.row_bytes_out);
        if (last) close_bag(feature, begin + count);
      } else {
        const float* const weights = feature.pooling == Pooling::kWeightedSum
                                         ? run_.inputs[feature_].weights + position
                                         : nullptr;
        if (piece.padded) {
          pool_padded(feature, block, id, count, weights, last);
        } else {
          pool(feature, block.rows + id, count, weights, last);
        }
        if (last) next_bag(feature);
      }
      if (last) skip_empty();
      id += count;
      position += count;
    }
  }

  void pool_padded(const Feature& feature, const Block& block, int id, int count,
                   const float* weights, bool last) noexcept {
    const std::byte* rows[kBlock];
    float kept_weights[kBlock];
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      if (block.kinds[id + i] == IdKind::kPadding) continue;
      rows[kept] = block.rows[id + i];
      if (weights != nullptr) kept_weights[kept] = weights[i];
      ++kept;
    }
    pool(feature, rows, kept, kept_weights, last);
  }

  void pool(const Feature& feature, const std::byte* const* rows, int count, const float* weights,
            bool last) noexcept {
    std::byte* const out = out_ + row_ * step_;
    const bool first = pooled_ == 0;
    pooled_ += count;
    if (feature.pooling == Pooling::kWeightedSum) {
      for (int i = 0; i < count; ++i) {
        weight_ += feature.divisor == Divisor::kSqrtn ? weights[i] * weights[i] : weights[i];
      }
    }
    const float divisor = last ? divisor_of(feature) : 1;
    if (last && (pooled_ == 0 || divisor == 0)) {
      __builtin_memset(out, 0, feature.row_bytes_out);
      return;
    }
    if (count == 0 && !last) return;
    feature.pool({rows, weights, count, first, last, feature.output, feature.table.format.dim,
                  divisor, partial_, out});
  }

  float divisor_of(const Feature& feature) const noexcept {
    if (feature.divisor == Divisor::kNone) return 1;
    const float total =
        feature.pooling == Pooling::kWeightedSum ? weight_ : static_cast<float>(pooled_);
    return feature.divisor == Divisor::kSqrtn ? __builtin_sqrtf(total) : total;
  }

  const Run& run_;
  bool open_ = false;
  std::size_t feature_ = 0;
  std::byte* out_ = nullptr;
  std::ptrdiff_t step_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t row_ = 0;
  // The bag of `row_`, as positions among the feature's ids.
  std::int64_t bag_begin_ = 0;
  std::int64_t bag_end_ = 0;
  std::int64_t pooled_ = 0;  // ids of the bag so far, padding left out
  float weight_ = 0;         // sum of their weights, or of the squares
  alignas(64) float partial_[kPartialFloats];
};

}  // namespace
}  // namespace anabranch::store::lookup
