// Which rows and values of a column are used: what is missing, at fault, or beyond a limit.
//
// Thread-safety: one thread at a time; part of a workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "anabranch/features/feature.h"
#include "anabranch/features/program.h"
#include "anabranch/features/raw_column.h"

namespace anabranch::features {

enum class RowState : std::uint8_t { kSent, kDefault, kFault };

// Invariants: `states` has an entry for each row; `kept` has one where the feature is ragged, the
// values of the row that are used, 0 where the row was not sent; the places of `made` values follow
// the rows in order, where it is ragged without gaps, else `width` for every row.
class Selection {
 public:
  // Looks over a column whose readers found `faults`, and adds those of null and of too many
  // values. Adds to `truncated` and `defaulted` of `counts`. All rows are missing where `column`
  // was left out.
  void select(const Feature& feature, const RawColumn& column, std::vector<Fault>& faults,
              FeatureCounts& counts);
  // All of `rows` rows were left out, or are at fault.
  void fill(const Feature& feature, std::size_t rows, RowState state, FeatureCounts& counts);

  std::size_t rows() const noexcept { return states_.size(); }
  const std::vector<RowState>& states() const noexcept { return states_; }
  bool all_sent() const noexcept { return all_sent_; }
  // Entries that are made, those of rows that were not sent included where it is not ragged.
  std::size_t made() const noexcept { return made_; }
  std::size_t kept(std::size_t row) const noexcept { return ragged_ ? kept_[row] : width_; }
  std::size_t cut_off(std::size_t row) const noexcept {
    return ragged_ ? lengths_[row] - kept_[row] : 0;
  }
  // Values used of each row; empty where it is not ragged.
  std::span<const std::uint32_t> lengths() const noexcept { return kept_; }

  // Calls `use(from, to, count)` for runs of values that are used, where they are in the column
  // and among what is made of them.
  template <class Use>
  void for_runs(Use&& use) const {
    if (whole_) return use(std::size_t{0}, std::size_t{0}, made_);
    for_rows([&](std::size_t row, std::size_t from, std::size_t to) {
      if (states_[row] == RowState::kSent) use(from, to, kept(row));
    });
  }

  // Calls `use(row, from, to)` for each row.
  template <class Use>
  void for_rows(Use&& use) const {
    std::size_t from = 0;
    std::size_t to = 0;
    for (std::size_t row = 0; row < states_.size(); ++row) {
      const std::size_t skipped = ragged_ && keep_ == Keep::kLast ? cut_off(row) : 0;
      use(row, from + skipped, to);
      from += ragged_ ? lengths_[row] : width_;
      to += kept(row);
    }
  }

  // A row that turned out to be at fault; false where it was already.
  bool spoil(std::size_t row) noexcept;

 private:
  friend class RowFinder;

  void select_ragged(const Feature& feature, const RawColumn& column, std::vector<Fault>& faults,
                     FeatureCounts& counts);
  void note(std::size_t row, RowState state);

  std::vector<RowState> states_;
  std::vector<std::uint32_t> kept_;
  const std::uint32_t* lengths_ = nullptr;
  std::size_t width_ = 1;
  std::size_t made_ = 0;
  Keep keep_ = Keep::kError;
  bool ragged_ = false;
  bool all_sent_ = true;
  bool whole_ = true;  // every value of the column is used, at its own place
};

// Tells rows of places among what was made, asked for in rising order.
class RowFinder {
 public:
  explicit RowFinder(const Selection& selection) noexcept : selection_(selection) {}

  std::size_t row_of(std::size_t place) noexcept {
    if (!selection_.ragged_) return place / selection_.width_;
    while (place >= begin_ + selection_.kept_[row_]) begin_ += selection_.kept_[row_++];
    return row_;
  }

 private:
  const Selection& selection_;
  std::size_t row_ = 0;
  std::size_t begin_ = 0;  // of the row
};

}  // namespace anabranch::features
