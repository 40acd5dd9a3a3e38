#include "features/transforms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "features/decimal.h"
#include "features/found.h"
#include "features/hashing_farmhash.h"
#include "features/hashing_murmur3.h"
#include "features/hashing_xxh64.h"

namespace anabranch::features {
namespace {

std::size_t non_finite(std::span<const float> values) noexcept {
  std::size_t found = 0;
  for (const float value : values) found += std::isfinite(value) ? 0 : 1;
  return found;
}

// Keys of all `values`, by a hash of their bytes. The modulus is a copy, so that no key that is
// written can be taken for a part of it.
template <class HashBytes>
void hash_all(std::span<const std::string_view> values, Modulus modulus, std::int64_t* keys,
              HashBytes&& hash) {
  for (const std::string_view value : values) {
    *keys++ = static_cast<std::int64_t>(modulus.of(hash(value)));
  }
}

template <class HashBytes>
void hash_all(std::span<const std::int64_t> values, Modulus modulus, std::int64_t* keys,
              HashBytes&& hash) {
  DecimalText text;
  for (const std::int64_t value : values) {
    *keys++ = static_cast<std::int64_t>(modulus.of(hash(text.of(value))));
  }
}

template <class Value>
void hash_all(HashFunction function, std::uint64_t seed, const Modulus& modulus,
              std::span<const Value> values, std::int64_t* keys) {
  switch (function) {
    case HashFunction::kXxh64:
      return hash_all(values, modulus, keys,
                      [seed](std::string_view bytes) { return Xxh64::hash(bytes, seed); });
    case HashFunction::kMurmur3X64128Low:
      return hash_all(values, modulus, keys,
                      [seed = static_cast<std::uint32_t>(seed)](std::string_view bytes) {
                        return Murmur3::hash_low(bytes, seed);
                      });
    case HashFunction::kFarmhashFingerprint64:
      return hash_all(values, modulus, keys,
                      [](std::string_view bytes) { return Farmhash::fingerprint(bytes); });
  }
}

// The least integer that is not below `boundary`; none where that is more than any int64.
std::optional<std::int64_t> least_integer(double boundary) {
  constexpr double kPower63 = 0x1p63;
  const double up = std::ceil(boundary);
  if (up >= kPower63) return std::nullopt;
  if (up < -kPower63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(up);
}

// How many of the rising `boundaries` are not above each value; NaN is above all.
template <class Value>
void count_boundaries(const std::vector<Value>& boundaries, std::span<const Value> values,
                      std::int64_t* ids) {
  for (const Value value : values) {
    *ids++ = std::upper_bound(boundaries.begin(), boundaries.end(), value) - boundaries.begin();
  }
}

template <class Value, class Map>
void find_all(const Map& map, std::optional<std::int64_t> unknown, std::span<const Value> values,
              std::int64_t* ids, FeatureCounts& counts, Unfit at, std::vector<Unfit>& unfit) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto found = map.find(values[i]);
    if (found != map.end()) {
      ids[i] = found->second;
      continue;
    }
    ids[i] = unknown.value_or(0);
    if (unknown) {
      ++counts.out_of_vocabulary;
    } else {
      unfit.push_back({at.source + i, at.place + i});
    }
  }
}

void divide_all(std::int64_t divisor, std::span<const std::int64_t> values, std::int64_t* quotients,
                std::int64_t* remainders) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t quotient = values[i] / divisor;
    std::int64_t remainder = values[i] % divisor;
    if (remainder < 0) {
      --quotient;
      remainder += divisor;
    }
    quotients[i] = quotient;
    remainders[i] = remainder;
  }
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

}  // namespace

RunnableTransform::RunnableTransform(const Feature& feature) : method_(method_of(feature)) {}

RunnableTransform::Method RunnableTransform::method_of(const Feature& feature) {
  const auto to_key_hash = [](const Hash& hash) {
    return KeyHash{hash.function, hash.seed, Modulus(hash.num_buckets)};
  };
  return std::visit(
      Overloaded{
          [](std::monostate) -> Method { return AsIs{}; },
          [&](const Hash& hash) -> Method { return ByHashes{{to_key_hash(hash)}}; },
          [&](const Hashes& hashes) -> Method {
            ByHashes all;
            for (const Hash& hash : hashes.functions) all.functions.push_back(to_key_hash(hash));
            return all;
          },
          [](const Vocabulary& vocabulary) -> Method { return ByVocabulary{vocabulary}; },
          [](const QuotientRemainder& division) -> Method { return division; },
          [&](const Bucketize& bucketize) -> Method {
            if (feature.form.type == ValueType::kInt64) {
              ByIntBoundaries ints;
              for (const double boundary : bucketize.boundaries) {
                if (const auto least = least_integer(boundary)) ints.boundaries.push_back(*least);
              }
              return ints;
            }
            ByFloatBoundaries floats;
            for (const double boundary : bucketize.boundaries) {
              floats.boundaries.push_back(static_cast<float>(boundary));
            }
            return floats;
          },
      },
      feature.transform);
}

void RunnableTransform::run(const RawColumn& column, std::size_t from, std::size_t count,
                            std::size_t to, MadeValues& made, FeatureCounts& counts,
                            std::vector<Unfit>& unfit) const {
  if (count == 0) return;
  const auto with_values = [&](auto&& use) {
    if (column.type == ValueType::kInt64) {
      use(column.ints.subspan(from, count));
    } else {
      use(column.strings.subspan(from, count));
    }
  };
  std::visit(Overloaded{
                 [&](const AsIs&) {
                   if (column.type == ValueType::kInt64) {
                     std::copy_n(column.ints.data() + from, count, made.ids[0].data() + to);
                   } else if (column.type == ValueType::kFloat32) {
                     std::copy_n(column.floats.data() + from, count, made.floats.data() + to);
                     counts.out_of_range += non_finite(column.floats.subspan(from, count));
                   } else {
                     std::copy_n(column.strings.data() + from, count, made.strings.data() + to);
                   }
                 },
                 [&](const ByHashes& by) {
                   for (std::size_t key = 0; key < by.functions.size(); ++key) {
                     const KeyHash& hash = by.functions[key];
                     std::int64_t* keys = made.ids[key].data() + to;
                     with_values([&](auto values) {
                       hash_all(hash.function, hash.seed, hash.modulus, values, keys);
                     });
                   }
                 },
                 [&](const ByVocabulary& by) {
                   std::int64_t* ids = made.ids[0].data() + to;
                   with_values([&](auto values) {
                     using Value = std::remove_const_t<typename decltype(values)::element_type>;
                     if constexpr (std::is_same_v<Value, std::int64_t>) {
                       find_all(by.vocabulary.ints, by.vocabulary.unknown, values, ids, counts,
                                {from, to}, unfit);
                     } else {
                       find_all(by.vocabulary.strings, by.vocabulary.unknown, values, ids, counts,
                                {from, to}, unfit);
                     }
                   });
                 },
                 [&](const ByFloatBoundaries& by) {
                   const auto values = column.floats.subspan(from, count);
                   count_boundaries(by.boundaries, values, made.ids[0].data() + to);
                   counts.out_of_range += non_finite(values);
                 },
                 [&](const ByIntBoundaries& by) {
                   count_boundaries(by.boundaries, column.ints.subspan(from, count),
                                    made.ids[0].data() + to);
                 },
                 [&](const QuotientRemainder& by) {
                   divide_all(by.divisor, column.ints.subspan(from, count), made.ids[0].data() + to,
                              made.ids[1].data() + to);
                 },
             },
             method_);
}

std::string unknown_text(const RawColumn& column, std::size_t source) {
  return "expected a value of the vocabulary, got " + (column.type == ValueType::kInt64
                                                           ? std::to_string(column.ints[source])
                                                           : quoted(column.strings[source]));
}

}  // namespace anabranch::features
