// Transforms made ready to run over many values at once.
//
// Thread-safety: immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "anabranch/features/feature.h"
#include "anabranch/features/program.h"
#include "anabranch/features/raw_column.h"
#include "features/made_values.h"
#include "features/modulus.h"

namespace anabranch::features {

// A value that has no id, and its row is therefore at fault: the place of the raw value, and of
// what was made of it.
struct Unfit {
  std::size_t source;
  std::size_t place;
};

class RunnableTransform {
 public:
  // `feature` was checked: its transform takes values of its type.
  explicit RunnableTransform(const Feature& feature);

  // Makes ids, floats or strings of values [from, from + count) of `column`, at `to` on in `made`,
  // where there is room. Adds to `out_of_vocabulary` and `out_of_range` of `counts`, and to `unfit`
  // values that are not in a vocabulary without an id for what is unknown; those become 0.
  void run(const RawColumn& column, std::size_t from, std::size_t count, std::size_t to,
           MadeValues& made, FeatureCounts& counts, std::vector<Unfit>& unfit) const;

 private:
  struct KeyHash {
    HashFunction function;
    std::uint64_t seed;
    Modulus modulus;
  };
  struct AsIs {};
  struct ByHashes {
    std::vector<KeyHash> functions;
  };
  struct ByVocabulary {
    Vocabulary vocabulary;
  };
  struct ByFloatBoundaries {
    std::vector<float> boundaries;
  };
  struct ByIntBoundaries {
    std::vector<std::int64_t> boundaries;  // the least integers that are not below each
  };
  using Method = std::variant<AsIs, ByHashes, ByVocabulary, ByFloatBoundaries, ByIntBoundaries,
                              QuotientRemainder>;

  static Method method_of(const Feature& feature);

  Method method_;
};

// What to say of a value of `column` that is not in the vocabulary.
std::string unknown_text(const RawColumn& column, std::size_t source);

}  // namespace anabranch::features
