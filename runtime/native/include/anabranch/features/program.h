// All features of one version, compiled: one call turns what a caller sent into the graph's inputs.
//
// Thread-safety: a program is immutable; `run` may be called by many threads at once, each with a
// workspace of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "anabranch/aligned_buffer.h"
#include "anabranch/features/feature.h"

namespace anabranch::features {

// A column in the form it came in: JSON text, a serialised Column, or a column that was read
// already (of an item table). `monostate`: left out.
struct JsonText {
  std::string_view text;
};
struct MessageBytes {
  std::string_view bytes;
};
using SentColumn = std::variant<std::monostate, JsonText, MessageBytes, RawColumn>;

// What happened to the values of a feature; each counts values, but `defaulted`, which counts rows.
struct FeatureCounts {
  std::uint64_t values = 0;             // after truncation, defaults included
  std::uint64_t defaulted = 0;          // rows that the default stands in for
  std::uint64_t out_of_vocabulary = 0;  // values that took the id of what is unknown
  std::uint64_t truncated = 0;          // values that were cut off
  std::uint64_t out_of_range = 0;       // numbers that are not finite, or outside all boundaries
};

// Keys of a feature that lookups read, flat: `ids` of all rows; `lengths` where it is ragged and
// not padded, `weights` where it is weighted (1 where none were sent).
struct Keys {
  std::vector<std::vector<std::int64_t>> ids;  // one for each key of a value
  std::vector<std::int64_t> lengths;
  std::vector<float> weights;
};

struct FeatureFault {
  std::size_t feature;
  Fault fault;
};

struct Outputs {
  std::size_t rows = 0;                           // candidates
  std::vector<AlignedBuffer> tensors;             // in the program's order, row-major
  std::vector<std::vector<std::string>> strings;  // of tensors of strings; else empty
  std::vector<std::size_t> tensor_rows;
  std::vector<Keys> keys;             // one for each feature; empty where it fills a tensor
  std::vector<FeatureCounts> counts;  // one for each feature
  std::vector<FeatureFault> faults;   // by feature, then by row
};

class Program {
 public:
  // Throws std::invalid_argument where features and tensors contradict each other.
  Program(std::vector<Feature> features, std::vector<Tensor> tensors);

  std::span<const Feature> features() const noexcept;
  std::span<const Tensor> tensors() const noexcept;

  // Runs all features over `columns`, one for each feature in their order. All columns of
  // candidates have the same number of rows, which is the request's; `rows` is that number where
  // every one of them was left out. A row at fault keeps the request's shape: its outputs are
  // those of the default, or zeros. A required feature that was left out is a fault of the whole
  // column. Throws ColumnTooLarge.
  Outputs run(std::span<const SentColumn> columns, std::size_t rows,
              const ColumnLimits& limits) const;

 private:
  std::vector<Feature> features_;
  std::vector<Tensor> tensors_;
};

}  // namespace anabranch::features
