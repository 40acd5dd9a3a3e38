#include "features/feature_work.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>

namespace anabranch::features {
namespace {

constexpr float kHalfLimit = 65520.0F;  // from here on FP16 rounds to infinity

MadeForm form_of(const Feature& feature) {
  MadeForm form;
  form.keys = feature.keys_each();
  form.weighted = feature.form.weighted;
  const bool as_is = std::holds_alternative<std::monostate>(feature.transform);
  if (as_is && feature.form.type == ValueType::kFloat32) {
    form.content = MadeForm::Content::kFloats;
  } else if (as_is && feature.form.type == ValueType::kString) {
    form.content = MadeForm::Content::kStrings;
  }
  return form;
}

std::string decimal(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  return {text, written.ptr};
}

std::string range_text(std::int64_t value, const NumberRange& range, NumberType type) {
  return "expected an integer from " + std::to_string(range.low) + " to " +
         std::to_string(range.high) + ", as " + std::string(to_name(type)) + " holds, got " +
         std::to_string(value);
}

void sort_by_row(std::vector<Fault>& faults) {
  const auto before = [](const Fault& a, const Fault& b) { return a.row < b.row; };
  if (!std::is_sorted(faults.begin(), faults.end(), before)) {
    std::stable_sort(faults.begin(), faults.end(), before);
  }
  const auto same = [](const Fault& a, const Fault& b) { return a.row == b.row; };
  faults.erase(std::unique(faults.begin(), faults.end(), same), faults.end());
}

}  // namespace

FeatureWork::FeatureWork(const Feature& feature, std::span<const Tensor> tensors)
    : feature_(&feature), tensors_(tensors), transform_(feature), form_(form_of(feature)) {
  for (const TensorSink& sink : feature.values) {
    const NumberType type = tensors[sink.tensor].type;
    ranges_.push_back(range_of(type));
    to_half_ |= form_.content == MadeForm::Content::kFloats && type == NumberType::kFloat16;
  }
  make_stand_in();
}

void FeatureWork::make_stand_in() {
  const Feature& feature = *feature_;
  if (!feature.default_value) {
    stand_in_values_ = feature.form.ragged ? 0 : feature.form.width;
    stand_in_.reserve(form_, stand_in_values_);
    std::fill(stand_in_.weights.begin(), stand_in_.weights.end(), 1.0F);
    return;
  }
  const Default& value = *feature.default_value;
  const std::vector<std::string_view> strings(value.strings.begin(), value.strings.end());
  RawColumn column;
  column.type = feature.form.type;
  column.rows = 1;
  column.ints = value.ints;
  column.floats = value.floats;
  column.strings = strings;
  const auto count = static_cast<std::uint32_t>(
      std::max({column.ints.size(), column.floats.size(), column.strings.size()}));
  if (feature.form.ragged) column.lengths = {&count, 1};
  Workspace workspace;
  FeatureCounts counts;
  const MadeRows made = make(column, workspace, counts);
  if (!workspace.faults.empty()) {
    throw std::invalid_argument("feature '" + feature.name +
                                "': its default: " + workspace.faults.front().text);
  }
  stand_in_.reserve(form_, made.count);
  stand_in_.copy(form_, made.values, 0, 0, made.count);
  stand_in_values_ = made.count;
  stand_in_counts_ = counts;
}

MadeRows FeatureWork::make(const RawColumn& column, Workspace& workspace,
                           FeatureCounts& counts) const {
  FeatureCounts found;
  workspace.selection.select(*feature_, column, workspace.faults, found);
  workspace.made.reserve(form_, workspace.selection.made());
  transform(column, workspace, found);
  if (find_faults(column, workspace)) recount(column, workspace, found);
  sort_by_row(workspace.faults);
  const MadeRows made = assemble(workspace, found);
  counts += found;
  return made;
}

MadeRows FeatureWork::stand_ins(std::size_t rows, bool at_fault, Workspace& workspace,
                                FeatureCounts& counts) const {
  workspace.selection.fill(*feature_, rows, at_fault ? RowState::kFault : RowState::kDefault,
                           counts);
  workspace.made.reserve(form_, workspace.selection.made());
  return assemble(workspace, counts);
}

void FeatureWork::transform(const RawColumn& column, Workspace& workspace,
                            FeatureCounts& counts) const {
  workspace.unfit.clear();
  MadeValues& made = workspace.made;
  workspace.selection.for_runs([&](std::size_t from, std::size_t to, std::size_t count) {
    transform_.run(column, from, count, to, made, counts, workspace.unfit);
    counts.values += count;
    if (!form_.weighted) return;
    if (column.weights.empty()) {
      std::fill_n(made.weights.begin() + static_cast<std::ptrdiff_t>(to), count, 1.0F);
    } else {
      std::copy_n(column.weights.data() + from, count, made.weights.data() + to);
    }
  });
}

bool FeatureWork::find_faults(const RawColumn& column, Workspace& workspace) const {
  bool found = false;
  RowFinder finder(workspace.selection);
  for (const Unfit& unfit : workspace.unfit) {
    const std::size_t row = finder.row_of(unfit.place);
    if (!workspace.selection.spoil(row)) continue;
    workspace.faults.push_back({row, unknown_text(column, unfit.source)});
    found = true;
  }
  find_out_of_range(workspace, found);
  return found;
}

void FeatureWork::find_out_of_range(Workspace& workspace, bool& found) const {
  Selection& selection = workspace.selection;
  // Places of runs stay what they are while rows are spoiled, so they are collected first.
  const auto find_in = [&](const auto& values, auto&& holds, auto&& text) {
    std::vector<std::size_t> places;
    selection.for_runs([&](std::size_t, std::size_t to, std::size_t count) {
      const auto* begin = values.data() + to;
      if (std::all_of(begin, begin + count, holds)) return;
      for (std::size_t i = 0; i < count; ++i) {
        if (!holds(begin[i])) places.push_back(to + i);
      }
    });
    RowFinder finder(selection);
    for (const std::size_t place : places) {
      const std::size_t row = finder.row_of(place);
      if (!selection.spoil(row)) continue;
      workspace.faults.push_back({row, text(values[place])});
      found = true;
    }
  };
  if (to_half_) {
    find_in(
        workspace.made.floats,
        [](float value) { return !std::isfinite(value) || std::abs(value) < kHalfLimit; },
        [](float value) {
          return "expected a number from -65504 to 65504, as FP16 holds, got " + decimal(value);
        });
  }
  if (form_.content != MadeForm::Content::kIds) return;
  for (std::size_t key = 0; key < ranges_.size(); ++key) {
    const NumberRange range = ranges_[key];
    const NumberType type = tensors_[feature_->values[key].tensor].type;
    if (type == NumberType::kInt64) continue;
    find_in(
        workspace.made.ids[key], [range](std::int64_t value) { return range.holds(value); },
        [&](std::int64_t value) { return range_text(value, range, type); });
  }
}

void FeatureWork::recount(const RawColumn& column, Workspace& workspace,
                          FeatureCounts& counts) const {
  const Selection& selection = workspace.selection;
  counts = {.defaulted = counts.defaulted};
  selection.for_rows([&](std::size_t row, std::size_t from, std::size_t to) {
    if (selection.states()[row] != RowState::kSent) return;
    // Makes what is there already.
    transform_.run(column, from, selection.kept(row), to, workspace.made, counts, workspace.unfit);
    counts.values += selection.kept(row);
    counts.truncated += selection.cut_off(row);
  });
}

MadeRows FeatureWork::assemble(Workspace& workspace, FeatureCounts& counts) const {
  const Selection& selection = workspace.selection;
  const bool ragged = feature_->form.ragged;
  MadeRows rows{
      form_,  workspace.made,     selection.rows(), selection.made(), feature_->form.width,
      ragged, selection.lengths()};
  if (selection.all_sent()) return rows;
  const auto stand_in = [&](std::size_t row) {
    if (selection.states()[row] == RowState::kDefault) {
      counts.values += stand_in_counts_.values;
      counts.out_of_vocabulary += stand_in_counts_.out_of_vocabulary;
      counts.out_of_range += stand_in_counts_.out_of_range;
      counts.truncated += stand_in_counts_.truncated;
    }
  };
  if (!ragged) {
    for (std::size_t row = 0; row < selection.rows(); ++row) {
      if (selection.states()[row] == RowState::kSent) continue;
      stand_in(row);
      workspace.made.copy(form_, stand_in_, 0, row * stand_in_values_, stand_in_values_);
    }
    return rows;
  }
  // Rows change their lengths, so that all move.
  workspace.lengths.assign(selection.rows(), static_cast<std::uint32_t>(stand_in_values_));
  rows.count = 0;
  for (std::size_t row = 0; row < selection.rows(); ++row) {
    if (selection.states()[row] == RowState::kSent) {
      workspace.lengths[row] = static_cast<std::uint32_t>(selection.kept(row));
    }
    rows.count += workspace.lengths[row];
  }
  workspace.spare.reserve(form_, rows.count);
  std::size_t from = 0;
  std::size_t to = 0;
  for (std::size_t row = 0; row < selection.rows(); ++row) {
    const bool sent = selection.states()[row] == RowState::kSent;
    if (!sent) stand_in(row);
    workspace.spare.copy(form_, sent ? workspace.made : stand_in_, sent ? from : 0, to,
                         workspace.lengths[row]);
    from += selection.kept(row);
    to += workspace.lengths[row];
  }
  std::swap(workspace.made, workspace.spare);
  rows.lengths = workspace.lengths;
  return rows;
}

}  // namespace anabranch::features
