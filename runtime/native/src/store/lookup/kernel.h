// What a plan hands to the kernel of an instruction set: compiled features, one run, and how it
// ended.
//
// One source makes all kernels (pipeline.h and what it includes); each translation unit
// kernel_ISA.cpp compiles it with flags of its own. So that no code with wide instructions takes
// the place of another unit's: all of it is in unnamed namespaces, includes nothing of the standard
// library that has function bodies but std::byte, and is always compiled with optimisation, which
// leaves no shared inline function out of line. A test looks at the symbols.
//
// Thread-safety: plain data; kernels are pure functions of a Run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anabranch/store/lookup.h"

namespace anabranch::store::lookup {

// Rows of one bag, or of the part of one that lies in a block.
struct PoolCall {
  const std::byte* const* rows;
  const float* weights;  // one per row; only looked at by weighted kernels
  int count;
  bool first;  // nothing of this bag was pooled before
  bool last;   // the bag ends here: divide, round and write `out`; else leave it in `partial`
  OutputType output;
  std::uint32_t dim;
  float divisor;
  float* partial;  // kPartialFloats
  std::byte* out;
};
using PoolRows = void (*)(const PoolCall&);

// Converts `count` rows, to addresses `step` bytes apart.
using CopyRows = void (*)(const std::byte* const* rows, int count, std::uint32_t dim,
                          std::byte* out, std::ptrdiff_t step);

// Sums of a row of any dim, rounded up to whole vectors.
inline constexpr std::size_t kPartialFloats = RowFormat::kMaxDim + 16;

enum class Pooling : std::uint8_t { kSum, kWeightedSum, kMax };
enum class Divisor : std::uint8_t { kNone, kMean, kSqrtn };

// One lookup, compiled.
struct Feature {
  TableView table;
  std::uintptr_t arena_origin;  // where row 0 lay if the arena began with it
  std::uint32_t row_stride;
  std::uint32_t row_lines;   // cache lines to fetch ahead
  std::uint32_t row_limit;   // base_rows + arena_rows
  std::uint32_t max_length;  // ids a row
  const std::byte* zeros;    // a row of zeros
  const std::byte* missing;  // the row of a missing key; null where the policy is another
  const std::byte* padding;  // null in bags, which leave it out
  std::uint64_t missing_key;
  std::uint64_t padding_key;
  std::uint64_t add;
  IdType id_type;
  IdType bag_type;
  BagForm bag;
  Side side;
  MissingPolicy policy;
  OutputType output;
  Pooling pooling;
  Divisor divisor;
  bool has_padding;
  bool sequence;                // rows side by side instead of pooled
  bool direct;                  // one id a row, taken as it is
  bool broadcast;               // of a user, for rows: goes to Run::shared first
  std::uint32_t row_bytes_out;  // of one table row in the output
  std::size_t buffer;
  std::size_t offset;  // bytes from the start of an output row
  CopyRows copy;
  PoolRows pool;
};

// Where rows of users lie until they are copied to the rows of the batch.
struct SharedRows {
  std::byte* data;
  std::ptrdiff_t stride;
};

struct Run {
  const Feature* features;
  std::size_t feature_count;
  const FeatureInput* inputs;
  const OutputBuffer* outputs;
  SharedRows shared;
  std::uint64_t* keys;
  std::uint64_t* misses;
  std::int64_t rows;
  std::int64_t users;
  std::uint32_t version;
};

// Why a run stopped. Plain, so that kernels throw nothing.
struct Refusal {
  enum class Kind : std::uint8_t {
    kNone,
    kId,        // a float id that is no int64
    kMissing,   // a key that is not there and must be
    kBagCount,  // so many lengths or offsets, not what the rows need
    kNegative,  // a length or offset
    kFirst,     // the first offset is not 0
    kFalling,   // offsets
    kBeyond,    // bags end behind the last id
    kTooLong,   // a bag
  };
  Kind kind = Kind::kNone;
  std::size_t feature = 0;
  std::int64_t at = 0;     // kId, kMissing: position among the feature's ids; else row
  std::int64_t value = 0;  // key, length, offset or count
};

// Checks lengths or offsets of `rows` rows and counts the ids that they span.
Refusal check_bags(const Feature& feature, const FeatureInput& input, std::int64_t rows,
                   std::int64_t& ids) noexcept;

struct Kernel {
  const char* isa;
  Refusal (*run)(const Run&) noexcept;
  void (*choose)(Feature&) noexcept;  // sets `copy` and `pool`
};

extern const Kernel kPortableKernel;
#if defined(__x86_64__)
extern const Kernel kAvx2Kernel;
extern const Kernel kAvx512Kernel;
#endif

}  // namespace anabranch::store::lookup
