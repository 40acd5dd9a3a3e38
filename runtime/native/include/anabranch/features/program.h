// All features of one version, compiled: one call turns what a caller sent into the graph's inputs.
//
// Thread-safety: a program is immutable; any number of threads may call `run` at once. What a call
// needs beside its outputs is kept for each thread and used again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "anabranch/aligned_buffer.h"
#include "anabranch/features/array_column.h"
#include "anabranch/features/feature.h"
#include "anabranch/features/raw_column.h"

namespace anabranch::features {

// Columns in the form they came in: JSON text, a serialised Column, arrays that were read already.
struct JsonText {
  std::string_view text;
};
struct MessageBytes {
  std::string_view bytes;
};
using SentColumn = std::variant<std::monostate, JsonText, MessageBytes, ArrayParts>;  // or left out

// What happened to the values of a feature; each counts values, but `defaulted`, which counts rows.
// Rows at fault count nothing.
struct FeatureCounts {
  std::uint64_t values = 0;             // after truncation, defaults included
  std::uint64_t defaulted = 0;          // rows that the default stands in for
  std::uint64_t out_of_vocabulary = 0;  // values that took the id of what is unknown
  std::uint64_t truncated = 0;          // values that were cut off
  std::uint64_t out_of_range = 0;       // numbers that are not finite

  FeatureCounts& operator+=(const FeatureCounts& other) noexcept;
};

// Keys of a feature that lookups read, flat: those of all rows, one row after another. Where it is
// ragged they are not padded, and `lengths` says how many each row has; `weights` is there where
// the feature is weighted, 1 for each value where none were sent.
struct FlatKeys {
  std::size_t rows = 0;
  std::size_t values = 0;                // entries of each of `ids`
  std::vector<AlignedBuffer> ids;        // int64; one for each key of a value
  std::optional<AlignedBuffer> lengths;  // int64, `rows`
  std::optional<AlignedBuffer> weights;  // float, `values`
};

struct FeatureFault {
  std::size_t feature;
  Fault fault;
};

struct TensorValues {
  std::size_t rows = 0;
  AlignedBuffer numbers;             // row-major; empty where it is a tensor of strings
  std::vector<std::string> strings;  // else empty
};

struct Outputs {
  std::size_t rows = 0;               // candidates
  std::vector<TensorValues> tensors;  // in the program's order
  std::vector<FlatKeys> keys;         // of features that make keys, in their order
  std::vector<FeatureCounts> counts;  // one for each feature
  std::vector<FeatureFault> faults;   // by feature, then by row; one of a row at most
};

// What `Program::read` returns: a view of the storage it was given, and of the bytes.
struct ReadColumn {
  RawColumn column;
  std::vector<Fault> faults;
};

class Program {
 public:
  // Throws std::invalid_argument where features and tensors contradict each other: columns that
  // overlap or that nothing fills, types that do not fit, a default that is itself at fault.
  Program(std::vector<Feature> features, std::vector<Tensor> tensors);
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  std::span<const Feature> features() const noexcept;
  std::span<const Tensor> tensors() const noexcept;

  // Runs all features over `columns`, one for each feature in their order.
  //
  // The first column of candidates that can be read says how many rows the request has; another
  // number is a fault of a whole column. `rows` is that number where every one of them was left
  // out. A row at fault keeps the request's shape: its outputs are those of the default, or zeros
  // and no values. A required feature that was left out is a fault of the whole column, and null a
  // fault of its row.
  //
  // A tensor that only features of the user fill has one row, others have one for each candidate,
  // with the user's values repeated. Keys of a user's feature have one row.
  //
  // Throws ColumnTooLarge, which names the feature, or the tensor that would have more values than
  // a column may; std::invalid_argument where the number of columns is wrong or arrays do not fit
  // their feature.
  Outputs run(std::span<const SentColumn> columns, std::size_t rows,
              const ColumnLimits& limits) const;

  // Reads one column as it was sent, without its transform. Throws as `run` does.
  ReadColumn read(std::size_t feature, const SentColumn& column, const ColumnLimits& limits,
                  ColumnStorage& storage) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace anabranch::features
