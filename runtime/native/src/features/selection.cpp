#include "features/selection.h"

#include <string>

namespace anabranch::features {

void Selection::note(std::size_t row, RowState state) {
  states_[row] = state;
  all_sent_ = false;
}

void Selection::fill(const Feature& feature, std::size_t rows, RowState state,
                     FeatureCounts& counts) {
  ragged_ = feature.form.ragged;
  width_ = feature.form.width;
  states_.assign(rows, state);
  all_sent_ = rows == 0;
  whole_ = false;
  // Rows that were not sent have no values to count or to cut.
  kept_.assign(ragged_ ? rows : 0, 0);
  lengths_ = kept_.data();
  made_ = ragged_ ? 0 : rows * width_;
  if (state == RowState::kDefault) counts.defaulted += rows;
}

void Selection::select(const Feature& feature, const RawColumn& column, std::vector<Fault>& faults,
                       FeatureCounts& counts) {
  ragged_ = feature.form.ragged;
  width_ = feature.form.width;
  states_.assign(column.rows, RowState::kSent);
  all_sent_ = true;
  whole_ = true;
  made_ = column.rows * width_;
  kept_.clear();
  for (const Fault& fault : faults) note(fault.row, RowState::kFault);
  for (std::size_t row = 0; row < column.missing.size(); ++row) {
    if (column.missing[row] == 0 || states_[row] != RowState::kSent) continue;
    if (feature.default_value) {
      note(row, RowState::kDefault);
      ++counts.defaulted;
    } else {
      note(row, RowState::kFault);
      faults.push_back({row, "expected a value, got null"});
    }
  }
  whole_ = all_sent_;
  if (ragged_) select_ragged(feature, column, faults, counts);
}

void Selection::select_ragged(const Feature& feature, const RawColumn& column,
                              std::vector<Fault>& faults, FeatureCounts& counts) {
  const std::size_t most = feature.ragged->max_length;
  keep_ = feature.ragged->keep;
  lengths_ = column.lengths.data();
  kept_.assign(column.lengths.begin(), column.lengths.end());
  made_ = 0;
  // Rows that were not sent have no values, so that they leave no gap.
  whole_ = true;
  for (std::size_t row = 0; row < column.rows; ++row) {
    const std::size_t length = kept_[row];
    if (states_[row] != RowState::kSent) {
      if (length > 0) whole_ = false;
      kept_[row] = 0;
    } else if (length > most) {
      whole_ = false;
      if (keep_ == Keep::kError) {
        kept_[row] = 0;
        note(row, RowState::kFault);
        faults.push_back({row, "expected at most " + std::to_string(most) + " values, got " +
                                   std::to_string(length)});
      } else {
        kept_[row] = static_cast<std::uint32_t>(most);
        counts.truncated += length - most;
      }
    }
    made_ += kept_[row];
  }
}

bool Selection::spoil(std::size_t row) noexcept {
  if (states_[row] == RowState::kFault) return false;
  states_[row] = RowState::kFault;
  all_sent_ = false;
  return true;
}

}  // namespace anabranch::features
