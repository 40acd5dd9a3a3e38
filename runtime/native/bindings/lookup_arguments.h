// Arrays that lookups read and write, checked once and held while they are bound.
//
// Thread-safety: bound and run by one thread at a time.
// Invariant: what `arguments()` points to lies in arrays that are held, for as many rows and users
// as `run` lets through.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "anabranch/store/lookup.h"
#include "arrays.h"

// A compiled plan, and the width of the rows that each of its lookups reads.
struct BoundPlan {
  anabranch::store::LookupPlan plan;
  std::vector<std::uint32_t> dims;
};

// The arrays of one feature.
class BoundFeature {
 public:
  // `bag` and `weights` may be None where the lookup has none. Throws Refused.
  BoundFeature(const anabranch::store::LookupSpec& spec, std::uint32_t dim, nb::handle ids,
               nb::handle bag, nb::handle weights);

  const anabranch::store::FeatureInput& input() const noexcept { return input_; }
  // Lengths or offsets; null where rows are of fixed length.
  const ArrayView* bag() const noexcept { return bag_ ? &*bag_ : nullptr; }
  // Rows or users, after the lookup's side, that the arrays reach for.
  std::int64_t reach() const noexcept { return reach_; }
  // Bytes of rows that a run reads: per row or user, and however many there are.
  std::size_t bytes_each() const noexcept { return bytes_each_; }
  std::size_t bytes_flat() const noexcept { return bytes_flat_; }

 private:
  void bind_fixed(const anabranch::store::LookupSpec& spec);
  void bind_ragged(const anabranch::store::LookupSpec& spec, nb::handle bag);

  ArrayView ids_;
  std::optional<ArrayView> bag_;
  std::optional<ArrayView> weights_;
  anabranch::store::FeatureInput input_;
  std::int64_t reach_ = 0;
  std::size_t bytes_each_ = 0;
  std::size_t bytes_flat_ = 0;
};

class BoundArguments {
 public:
  // `plan` outlives this. `features` have the attributes ids, bag and weights; one per lookup, and
  // one array per buffer. Throws Refused.
  BoundArguments(const BoundPlan& plan, nb::handle features, nb::handle outputs);

  // Puts other arrays in the place of one feature's. Throws Refused, and changes nothing then.
  void bind(std::size_t index, nb::handle ids, nb::handle bag, nb::handle weights);

  // One run over `batch`, of which the plan must be that of the constructor.
  void run(const BoundPlan& plan, std::uint32_t version, std::int64_t rows, std::int64_t users,
           nb::handle user_index);

  std::vector<std::uint64_t>& keys() noexcept { return keys_; }
  std::vector<std::uint64_t>& misses() noexcept { return misses_; }

 private:
  void bind_output(std::size_t index, nb::handle output);
  // What says where rows go must not change while they are written. Throws Refused where an output
  // lies over it.
  void expect_apart(const ArrayView& array) const;
  // Once after any number of `bind`: a batch may bind every feature.
  void measure();

  const BoundPlan* plan_;
  std::vector<std::unique_ptr<BoundFeature>> features_;
  std::vector<std::unique_ptr<ArrayView>> outputs_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> misses_;
  anabranch::store::LookupArguments arguments_;
  bool is_measured_ = false;
  std::int64_t most_rows_ = 0;
  std::int64_t most_users_ = 0;
  std::size_t row_bytes_ = 0;
  std::size_t user_bytes_ = 0;
  std::size_t flat_bytes_ = 0;
  std::atomic<bool> taken_ = false;
};
