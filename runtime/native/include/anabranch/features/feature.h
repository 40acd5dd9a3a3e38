// What becomes of the raw values of one feature: a transform, a form, and where the result goes.
//
// Thread-safety: immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "anabranch/features/hashing.h"
#include "anabranch/features/raw_column.h"

namespace anabranch::features {

enum class Side : std::uint8_t { kUser, kCandidate };
enum class Keep : std::uint8_t { kFirst, kLast, kError };

// Key by a hash of a string, or of the decimal text of an integer; see `hash_key`.
struct Hash {
  HashFunction function;
  std::uint64_t seed = 0;
  std::uint64_t num_buckets = 0;
};

// Lets strings be found by views of them.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

// Place in a list: value to id. `unknown` is the id of what is not in it; without one that is a
// fault.
struct Vocabulary {
  std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>> strings;
  std::unordered_map<std::int64_t, std::int64_t> ints;
  std::optional<std::int64_t> unknown;
};

// How many boundaries are not above the value; NaN is above all of them. Boundaries of float32
// values are rounded to float32 first, so that 0.7 is not below a boundary of 0.7; integers are
// compared exactly.
struct Bucketize {
  std::vector<double> boundaries;
};

// Quotient and remainder by `divisor`, both floored so that the remainder is never negative.
struct QuotientRemainder {
  std::int64_t divisor;
};

// One key by each hash.
struct Hashes {
  std::vector<Hash> functions;
};

using Transform =
    std::variant<std::monostate, Hash, Vocabulary, Bucketize, QuotientRemainder, Hashes>;

// A raw value that stands in for what was left out, of the feature's type.
struct Default {
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
};

struct Ragged {
  std::size_t max_length;
  Keep keep = Keep::kError;
  std::optional<std::size_t> pad_to;  // then rows are padded to it, and are a sequence
  double padding = 0;
};

// Columns of a tensor, from `column` on; a ragged feature's number of values after truncation goes
// to a column of the same or another one.
struct TensorSink {
  std::size_t tensor;
  std::size_t column;
};

struct Feature {
  std::string name;
  Side side;
  ColumnForm form;
  Transform transform;
  std::optional<Default> default_value;  // a feature without one is required
  std::optional<Ragged> ragged;
  std::vector<TensorSink> values;  // one for each key of a value
  std::optional<TensorSink> lengths;
  bool makes_keys = false;  // its keys come out flat, for lookups; with neither it is only checked

  // Keys made of each value: more than one by several hashes.
  std::size_t keys_each() const;
};

enum class NumberType : std::uint8_t { kInt32, kInt64, kFloat16, kFloat32, kFloat64, kString };

// A dense input of the graph that features fill. Where all of its features are the user's it has
// one row, else a row for each candidate, with the user's values repeated.
struct Tensor {
  std::string name;
  NumberType type;
  std::size_t columns;
};

}  // namespace anabranch::features
