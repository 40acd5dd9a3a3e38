#include "anabranch/features/program.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "anabranch/features/json_column.h"
#include "anabranch/features/message_column.h"
#include "features/feature_work.h"
#include "features/program_checks.h"
#include "features/sinks.h"
#include "features/workspace.h"

namespace anabranch::features {
namespace {

bool is_sent(const SentColumn& column) { return !std::holds_alternative<std::monostate>(column); }

bool is_whole(const std::vector<Fault>& faults) {
  return std::any_of(faults.begin(), faults.end(),
                     [](const Fault& fault) { return fault.row == Fault::kWhole; });
}

// Reads a column that was sent, whatever its form.
RawColumn read_column(const Feature& feature, const SentColumn& sent, const ColumnLimits& limits,
                      ColumnStorage& storage, std::vector<Fault>& faults) {
  const bool one_row = feature.side == Side::kUser;
  faults.clear();
  try {
    if (const auto* json = std::get_if<JsonText>(&sent)) {
      return read_json_column(json->text, feature.form, one_row, limits, storage, faults);
    }
    if (const auto* message = std::get_if<MessageBytes>(&sent)) {
      return read_message_column(message->bytes, feature.form, one_row, limits, storage, faults);
    }
    return read_array_column(std::get<ArrayParts>(sent), feature.form, limits, storage);
  } catch (const ColumnTooLarge& large) {
    throw ColumnTooLarge("feature '" + feature.name + "': " + large.what());
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("feature '" + feature.name + "': " + error.what());
  }
}

}  // namespace

struct Program::Compiled {
  std::vector<Feature> features;
  std::vector<Tensor> tensors;
  std::vector<FeatureWork> works;
  std::vector<bool> once;  // of each tensor, whether only the user's features fill it
};

namespace {

// One run: the outputs as far as they are filled.
class Run {
 public:
  Run(const std::vector<FeatureWork>& works, std::span<const Tensor> tensors,
      const std::vector<bool>& once, std::span<const SentColumn> columns,
      const ColumnLimits& limits)
      : works_(works),
        tensors_(tensors),
        once_(once),
        columns_(columns),
        limits_(limits),
        workspace_(Workspace::of_thread()) {}

  Outputs work(std::size_t rows) {
    const std::optional<RawColumn> first = find_rows(rows);
    allocate();
    if (first) finish(base_, *first);
    for (std::size_t feature = 0; feature < works_.size(); ++feature) {
      if (!first || feature != base_) feature_of(feature);
    }
    std::stable_sort(
        outputs_.faults.begin(), outputs_.faults.end(),
        [](const FeatureFault& a, const FeatureFault& b) { return a.feature < b.feature; });
    workspace_.trim();
    return std::move(outputs_);
  }

 private:
  // Reads the first column of candidates that can be read, which says how many there are.
  std::optional<RawColumn> find_rows(std::size_t rows) {
    for (std::size_t feature = 0; feature < works_.size(); ++feature) {
      if (works_[feature].feature().side == Side::kUser || !is_sent(columns_[feature])) continue;
      const RawColumn column = read(feature);
      if (is_whole(workspace_.faults)) continue;
      base_ = feature;
      outputs_.rows = column.rows;
      return column;
    }
    if (rows > limits_.max_rows) {
      throw ColumnTooLarge(std::to_string(rows) + " candidates, at most " +
                           std::to_string(limits_.max_rows) + " allowed");
    }
    outputs_.rows = rows;
    return std::nullopt;
  }

  void allocate() {
    outputs_.counts.resize(works_.size());
    outputs_.tensors.reserve(tensors_.size());
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const std::size_t rows = once_[tensor] ? 1 : outputs_.rows;
      const std::size_t columns = tensors_[tensor].columns;
      if (columns > 0 && rows > limits_.max_values / columns) {  // padding makes much of little
        throw ColumnTooLarge("input '" + tensors_[tensor].name + "': " + std::to_string(rows) +
                             " rows of " + std::to_string(columns) +
                             " values are more than the limit of " +
                             std::to_string(limits_.max_values));
      }
      outputs_.tensors.push_back(allocate_tensor(tensors_[tensor], rows));
    }
    std::size_t keys = 0;
    for (const FeatureWork& work : works_) keys += work.feature().makes_keys ? 1 : 0;
    outputs_.keys.resize(keys);
  }

  RawColumn read(std::size_t feature) {
    return read_column(works_[feature].feature(), columns_[feature], limits_, workspace_.storage,
                       workspace_.faults);
  }

  void feature_of(std::size_t index) {
    const Feature& feature = works_[index].feature();
    if (!is_sent(columns_[index])) {
      if (feature.default_value) return stand_in(index, false);
      return refuse(index, {Fault::kWhole, "expected a value, got nothing"});
    }
    const RawColumn column = read(index);
    if (is_whole(workspace_.faults)) {
      const auto& faults = workspace_.faults;
      return refuse(index, *std::find_if(faults.begin(), faults.end(), [](const Fault& fault) {
                      return fault.row == Fault::kWhole;
                    }));
    }
    if (column.rows != rows_of(feature)) {
      return refuse(index, {Fault::kWhole, rows_text(feature, column.rows)});
    }
    finish(index, column);
  }

  void refuse(std::size_t index, Fault fault) {
    outputs_.faults.push_back({index, std::move(fault)});
    stand_in(index, true);
  }

  void stand_in(std::size_t index, bool at_fault) {
    const FeatureWork& work = works_[index];
    write(index,
          work.stand_ins(rows_of(work.feature()), at_fault, workspace_, outputs_.counts[index]));
  }

  void finish(std::size_t index, const RawColumn& column) {
    write(index, works_[index].make(column, workspace_, outputs_.counts[index]));
    for (Fault& fault : workspace_.faults) {
      outputs_.faults.push_back({index, std::move(fault)});
    }
  }

  void write(std::size_t index, const MadeRows& made) {
    const Feature& feature = works_[index].feature();
    const bool is_padded = feature.ragged && feature.ragged->pad_to;
    const Ragged* padded = is_padded ? &*feature.ragged : nullptr;
    for (std::size_t key = 0; key < feature.values.size(); ++key) {
      const TensorSink& sink = feature.values[key];
      fill_values(made, key, padded, tensors_[sink.tensor], sink.column,
                  outputs_.tensors[sink.tensor]);
    }
    if (feature.lengths) {
      const TensorSink& sink = *feature.lengths;
      fill_lengths(made, tensors_[sink.tensor], sink.column, outputs_.tensors[sink.tensor]);
    }
    if (!feature.makes_keys) return;
    std::size_t place = 0;
    for (std::size_t before = 0; before < index; ++before) {
      place += works_[before].feature().makes_keys ? 1 : 0;
    }
    outputs_.keys[place] = flat_keys(made);
  }

  std::size_t rows_of(const Feature& feature) const {
    return feature.side == Side::kUser ? 1 : outputs_.rows;
  }

  std::string rows_text(const Feature& feature, std::size_t found) const {
    const std::string got = ", got " + std::to_string(found);
    if (feature.side == Side::kUser) return "expected one row" + got;
    return "expected " + std::to_string(outputs_.rows) + " rows, as feature '" +
           works_[base_].feature().name + "' has" + got;
  }

  const std::vector<FeatureWork>& works_;
  std::span<const Tensor> tensors_;
  const std::vector<bool>& once_;
  std::span<const SentColumn> columns_;
  const ColumnLimits& limits_;
  Workspace& workspace_;
  std::size_t base_ = 0;  // the feature that says how many candidates there are
  Outputs outputs_;
};

}  // namespace

Program::Program(std::vector<Feature> features, std::vector<Tensor> tensors) {
  check_program(features, tensors);
  auto compiled = std::make_unique<Compiled>();
  compiled->features = std::move(features);
  compiled->tensors = std::move(tensors);
  compiled->once.assign(compiled->tensors.size(), true);
  for (const Feature& feature : compiled->features) {
    compiled->works.emplace_back(feature, compiled->tensors);
    if (feature.side == Side::kUser) continue;
    for (const TensorSink& sink : feature.values) compiled->once[sink.tensor] = false;
    if (feature.lengths) compiled->once[feature.lengths->tensor] = false;
  }
  compiled_ = std::move(compiled);
}

Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

std::span<const Feature> Program::features() const noexcept { return compiled_->features; }
std::span<const Tensor> Program::tensors() const noexcept { return compiled_->tensors; }

Outputs Program::run(std::span<const SentColumn> columns, std::size_t rows,
                     const ColumnLimits& limits) const {
  if (columns.size() != compiled_->works.size()) {
    throw std::invalid_argument("expected " + std::to_string(compiled_->works.size()) +
                                " columns, got " + std::to_string(columns.size()));
  }
  return Run(compiled_->works, compiled_->tensors, compiled_->once, columns, limits).work(rows);
}

ReadColumn Program::read(std::size_t feature, const SentColumn& column, const ColumnLimits& limits,
                         ColumnStorage& storage) const {
  if (feature >= compiled_->works.size() || !is_sent(column)) {
    throw std::invalid_argument("expected a column of a feature that there is");
  }
  ReadColumn read;
  read.column = read_column(compiled_->features[feature], column, limits, storage, read.faults);
  return read;
}

}  // namespace anabranch::features
