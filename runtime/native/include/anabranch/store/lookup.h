// A lookup plan: all features of a model, compiled once, run by one call per batch.
//
// A run hashes, probes and pools in overlapped blocks over all features, and writes pooled rows at
// column offsets of the output buffers. It accumulates in f32, and rounds once where a buffer is
// f16. What a lookup means exactly, feature by feature: docs/store.md, "Lookups".
//
// Thread-safety: a LookupPlan is immutable; `run` may be called by any number of threads, each with
// LookupArguments of its own.
// Ownership: the plan keeps its generation; arguments point to memory of the caller's.
// Source of the block pipeline: group prefetching (Chen, Ailamaki, Gibbons, Mowry: Improving hash
// join performance through prefetching, ICDE 2004), here over blocks that span features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anabranch/store/generation.h"

namespace anabranch::store {

enum class IdType : std::uint8_t { kInt32, kInt64, kFloat32, kFloat64 };
enum class Combiner : std::uint8_t { kNone, kSum, kMean, kSqrtn, kMax };
enum class Side : std::uint8_t { kRow, kUser };
enum class OutputType : std::uint8_t { kF32, kF16 };
// How flat ids are cut into rows. kFixed: `max_length` ids a row, at `ids_stride` from row to row.
enum class BagForm : std::uint8_t { kFixed, kLengths, kOffsets };

enum class MissingPolicy : std::uint8_t {
  kZeros,
  kVector,    // `missing_row`
  kKey,       // the row of `missing_key`, zeros where that is missing too
  kError,     // the run is refused
  kOriginal,  // dense ids as ONNX Gather: -rows..-1 count from the end, others are refused
};

struct LookupSpec {
  std::string feature;  // for messages
  std::size_t table;    // of the generation
  Side side = Side::kRow;
  IdType id_type = IdType::kInt64;  // floats are truncated toward zero, as ONNX Cast does
  std::int64_t add = 0;             // added to each id, wrapping around
  Combiner combiner = Combiner::kSum;
  BagForm bag = BagForm::kFixed;
  IdType bag_type = IdType::kInt64;  // of lengths or offsets: kInt32 or kInt64
  std::uint32_t max_length = 1;      // ids a row: exactly (kFixed), at most (kNone), else a bound
  bool weighted = false;             // f32 factor per id; not with kNone and kMax
  std::optional<std::uint64_t> padding_key;  // contributes nothing and is not counted
  MissingPolicy missing = MissingPolicy::kZeros;
  std::vector<float> missing_row;  // kVector
  std::uint64_t missing_key = 0;   // kKey
  std::size_t buffer = 0;
  std::size_t column = 0;  // writes dim columns, or max_length * dim with kNone
};

struct BufferSpec {
  OutputType type = OutputType::kF32;
  Side side = Side::kRow;  // rows: those of the batch, or its users
  std::size_t columns = 0;
};

// One feature of one batch.
struct FeatureInput {
  const void* ids = nullptr;    // of the spec's id_type
  std::int64_t ids_stride = 0;  // kFixed: elements from row to row; else ids are contiguous
  std::int64_t id_count = 0;    // ids that may be read; kFixed: not looked at
  const void* bag = nullptr;    // lengths [n], or offsets [n] or [n + 1]
  std::int64_t bag_count = 0;
  const float* weights = nullptr;  // one per id, contiguous
};

struct OutputBuffer {
  void* data = nullptr;
  std::int64_t stride = 0;  // elements from row to row, at least the buffer's columns
};

struct LookupArguments {
  std::vector<FeatureInput> features;  // one per lookup
  std::vector<OutputBuffer> outputs;   // one per buffer
  // One per lookup; `run` adds to them. Null: not counted.
  std::uint64_t* keys = nullptr;
  std::uint64_t* misses = nullptr;
};

struct Batch {
  std::uint32_t version;  // store version to read
  std::int64_t rows;
  std::int64_t users = 0;
  // Row -> user, [rows]; needed where a user-side lookup writes a row-side buffer. Null with one
  // user: all rows are that user's.
  const std::int64_t* user_index = nullptr;
};

class LookupPlan {
 public:
  static constexpr std::uint32_t kMaxLength = 1u << 20;

  // Throws std::invalid_argument where specs contradict each other or the tables: a column range
  // that overlaps or leaves its buffer, weights with kNone or kMax, a row of the wrong size,
  // kOriginal for a hashed table. `isa`: "" for the best of this machine, or one of
  // `instruction_sets()`.
  LookupPlan(std::shared_ptr<const Generation> generation, std::vector<LookupSpec> lookups,
             std::vector<BufferSpec> buffers, std::string_view isa = "");
  ~LookupPlan();
  LookupPlan(LookupPlan&&) noexcept;

  // Runs every lookup. Columns that no lookup writes stay as they are; a sequence that is shorter
  // than max_length ends in zeros. Throws Refused: a missing key under kError or kOriginal, lengths
  // or offsets that do not fit the ids, a sequence that is too long, a float id outside of int64;
  // the message names feature, row and value, and the outputs are undefined then. With nothing to
  // do (no rows) it does nothing.
  void run(const LookupArguments& arguments, const Batch& batch) const;

  std::span<const LookupSpec> lookups() const noexcept;
  std::span<const BufferSpec> buffers() const noexcept;
  std::string_view isa() const noexcept;

  // What this build and machine can run, the best first: "avx512", "avx2", "portable".
  static std::span<const std::string_view> instruction_sets() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace anabranch::store
