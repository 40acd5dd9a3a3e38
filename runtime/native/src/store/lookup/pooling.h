// Copies and pools rows: tight loops over the rows of a block, specialised by row type and dim.
//
// A row is cut into vectors; the last one overlaps the one before it where the dim is no multiple
// of the lanes, which computes a few columns twice but touches nothing outside of the row.
// Accumulators stay in registers for all rows of a bag that a block holds. Included by the kernels
// alone; see kernel.h on the unnamed namespace.
#pragma once

#include "store/lookup/kernel.h"
#include "store/lookup/vectors.h"

namespace anabranch::store::lookup {
namespace {

// The widest vectors that a row of `dim` numbers fills.
constexpr int lanes_for(std::uint32_t dim) noexcept {
  if (dim < 4) return 1;
  if (kLanes == 4 || dim < 8) return 4;
  return kLanes == 8 || dim < 16 ? 8 : kLanes;
}

template <int L>
constexpr std::uint32_t vectors_of(std::uint32_t dim) noexcept {
  return (dim + L - 1) / L;
}

template <int L>
constexpr std::uint32_t column_of(std::uint32_t vector, std::uint32_t dim) noexcept {
  return vector * L + L <= dim ? vector * L : dim - L;
}

template <OutputType O, int L>
[[gnu::always_inline]] inline void store_as(std::byte* out, std::uint32_t column,
                                            Floats<L> value) noexcept {
  if constexpr (O == OutputType::kF32) {
    store(out + 4 * std::size_t{column}, value);
  } else {
    store_half<L>(out + 2 * std::size_t{column}, value);
  }
}

// D: the dim; 0 where it is only known at run time.
template <RowType T, OutputType O, int L, std::uint32_t D>
void copy_rows(const std::byte* const* rows, int count, std::uint32_t dim, std::byte* out,
               std::ptrdiff_t step) {
  const std::uint32_t n = D != 0 ? D : dim;
  for (int i = 0; i < count; ++i, out += step) {
    const RowValues<T, L> row(rows[i]);
    for (std::uint32_t v = 0; v < vectors_of<L>(n); ++v) {
      const std::uint32_t column = column_of<L>(v, n);
      store_as<O, L>(out, column, row.at(column));
    }
  }
}

// K vectors of the bag, from number `vector` on.
template <RowType T, Pooling P, int L, int K>
[[gnu::always_inline]] inline void pool_vectors(const PoolCall& call, std::uint32_t dim,
                                                std::uint32_t vector) noexcept {
  Floats<L> sums[K];
  std::uint32_t columns[K];
  for (int k = 0; k < K; ++k) {
    columns[k] = column_of<L>(vector + static_cast<std::uint32_t>(k), dim);
  }
  float* const partial = call.partial + std::size_t{vector} * L;
  int i = 0;
  if (call.first) {
    const RowValues<T, L> row(call.rows[0]);
    for (int k = 0; k < K; ++k) {
      sums[k] = row.at(columns[k]);
      if constexpr (P == Pooling::kWeightedSum) sums[k] = sums[k] * call.weights[0];
    }
    i = 1;
  } else {
    for (int k = 0; k < K; ++k) sums[k] = load<Floats<L>>(partial + k * L);
  }
  for (; i < call.count; ++i) {
    const RowValues<T, L> row(call.rows[i]);
    for (int k = 0; k < K; ++k) {
      const Floats<L> value = row.at(columns[k]);
      if constexpr (P == Pooling::kSum) sums[k] = sums[k] + value;
      if constexpr (P == Pooling::kWeightedSum) sums[k] = sums[k] + value * call.weights[i];
      if constexpr (P == Pooling::kMax) sums[k] = greater(sums[k], value);
    }
  }
  if (!call.last) {
    for (int k = 0; k < K; ++k) store(partial + k * L, sums[k]);
    return;
  }
  if (call.divisor != 1) {
    for (int k = 0; k < K; ++k) sums[k] = sums[k] / call.divisor;
  }
  if (call.output == OutputType::kF32) {
    for (int k = 0; k < K; ++k) store_as<OutputType::kF32, L>(call.out, columns[k], sums[k]);
  } else {
    for (int k = 0; k < K; ++k) store_as<OutputType::kF16, L>(call.out, columns[k], sums[k]);
  }
}

// D: the dim; 0 where it is only known at run time.
template <RowType T, Pooling P, int L, std::uint32_t D>
void pool_rows(const PoolCall& call) {
  if constexpr (D != 0) {
    constexpr std::uint32_t kVectors = vectors_of<L>(D);
    constexpr int kAtOnce = kVectors < 8 ? static_cast<int>(kVectors) : 8;
    for (std::uint32_t v = 0; v < kVectors; v += kAtOnce) {
      pool_vectors<T, P, L, kAtOnce>(call, D, v);
    }
  } else {
    const std::uint32_t vectors = vectors_of<L>(call.dim);
    std::uint32_t v = 0;
    if constexpr (L == kLanes) {  // shorter rows have no four vectors
      for (; v + 4 <= vectors; v += 4) pool_vectors<T, P, L, 4>(call, call.dim, v);
    }
    for (; v + 2 <= vectors; v += 2) pool_vectors<T, P, L, 2>(call, call.dim, v);
    if (v < vectors) pool_vectors<T, P, L, 1>(call, call.dim, v);
  }
}

template <RowType T, int L, std::uint32_t D>
void choose_copy(Feature& feature) noexcept {
  feature.copy = feature.output == OutputType::kF32 ? copy_rows<T, OutputType::kF32, L, D>
                                                    : copy_rows<T, OutputType::kF16, L, D>;
}

// The usual dims, copied or summed.
template <RowType T, std::uint32_t D>
void choose_fixed(Feature& feature) noexcept {
  choose_copy<T, lanes_for(D), D>(feature);
  if (feature.pooling == Pooling::kSum) {
    feature.pool = pool_rows<T, Pooling::kSum, lanes_for(D), D>;
  }
}

template <RowType T, int L>
void choose_any(Feature& feature) noexcept {
  choose_copy<T, L, 0>(feature);
  switch (feature.pooling) {
    case Pooling::kSum:
      feature.pool = pool_rows<T, Pooling::kSum, L, 0>;
      break;
    case Pooling::kWeightedSum:
      feature.pool = pool_rows<T, Pooling::kWeightedSum, L, 0>;
      break;
    case Pooling::kMax:
      feature.pool = pool_rows<T, Pooling::kMax, L, 0>;
      break;
  }
}

template <RowType T>
void choose_type(Feature& feature) noexcept {
  const std::uint32_t dim = feature.table.format.dim;
  switch (lanes_for(dim)) {
    case 1:
      choose_any<T, 1>(feature);
      break;
    case 4:
      choose_any<T, 4>(feature);
      break;
    case 8:
      choose_any<T, lanes_for(8)>(feature);
      break;
    default:
      choose_any<T, kLanes>(feature);
      break;
  }
  switch (dim) {
    case 4:
      return choose_fixed<T, 4>(feature);
    case 8:
      return choose_fixed<T, 8>(feature);
    case 16:
      return choose_fixed<T, 16>(feature);
    case 32:
      return choose_fixed<T, 32>(feature);
    case 64:
      return choose_fixed<T, 64>(feature);
    case 128:
      return choose_fixed<T, 128>(feature);
    default:
      return;
  }
}

// Sets the loops for a feature's row type, dim and combiner.
void choose(Feature& feature) noexcept {
  switch (feature.table.format.type) {
    case RowType::kF32:
      return choose_type<RowType::kF32>(feature);
    case RowType::kF16:
      return choose_type<RowType::kF16>(feature);
    case RowType::kBf16:
      return choose_type<RowType::kBf16>(feature);
    case RowType::kInt8:
      return choose_type<RowType::kInt8>(feature);
  }
}

}  // namespace
}  // namespace anabranch::store::lookup
