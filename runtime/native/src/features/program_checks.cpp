#include "features/program_checks.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "features/number_ranges.h"

namespace anabranch::features {
namespace {

// The checks of one feature, under its name.
class FeatureCheck {
 public:
  FeatureCheck(const Feature& feature, std::span<const Tensor> tensors)
      : feature_(feature), tensors_(tensors) {}

  void run() const {
    check_form();
    check_transform();
    check_default();
    check_sinks();
  }

  std::size_t columns() const {
    const bool padded = feature_.ragged && feature_.ragged->pad_to;
    return padded ? *feature_.ragged->pad_to : feature_.form.width;
  }

 private:
  void expect(bool holds, const char* what) const {
    if (!holds) throw std::invalid_argument("feature '" + feature_.name + "': " + what);
  }

  bool is_as_is() const { return std::holds_alternative<std::monostate>(feature_.transform); }
  bool makes_ids() const { return !is_as_is() || feature_.form.type == ValueType::kInt64; }

  void check_form() const {
    const ColumnForm& form = feature_.form;
    expect(form.width >= 1, "expected at least one value in a row");
    expect(form.ragged == feature_.ragged.has_value(), "expected limits where it is ragged");
    if (!feature_.ragged) return;
    const Ragged& ragged = *feature_.ragged;
    expect(form.width == 1, "expected a ragged feature or a vector, not both");
    expect(ragged.max_length >= 1, "max_length: expected at least 1");
    expect(!ragged.pad_to || *ragged.pad_to >= ragged.max_length,
           "pad_to: expected at least max_length");
  }

  void check_transform() const {
    const ValueType type = feature_.form.type;
    const bool hashes = std::holds_alternative<Hash>(feature_.transform) ||
                        std::holds_alternative<Hashes>(feature_.transform) ||
                        std::holds_alternative<Vocabulary>(feature_.transform);
    expect(!hashes || type != ValueType::kFloat32, "expected int64 or string, got float32");
    if (const auto* all = std::get_if<Hashes>(&feature_.transform)) {
      expect(!all->functions.empty(), "expected at least one hash");
    }
    if (const auto* division = std::get_if<QuotientRemainder>(&feature_.transform)) {
      expect(type == ValueType::kInt64, "quotient and remainder: expected int64");
      expect(division->divisor >= 1, "divisor: expected at least 1");
    }
    if (const auto* bucketize = std::get_if<Bucketize>(&feature_.transform)) {
      expect(type != ValueType::kString, "boundaries: expected int64 or float32, got string");
      const auto& all = bucketize->boundaries;
      expect(std::none_of(all.begin(), all.end(), [](double b) { return std::isnan(b); }) &&
                 std::is_sorted(all.begin(), all.end()),
             "boundaries: expected rising numbers");
    }
  }

  void check_default() const {
    if (!feature_.default_value) return;
    const Default& value = *feature_.default_value;
    const ValueType type = feature_.form.type;
    const std::size_t count = type == ValueType::kInt64     ? value.ints.size()
                              : type == ValueType::kFloat32 ? value.floats.size()
                                                            : value.strings.size();
    expect(count == value.ints.size() + value.floats.size() + value.strings.size(),
           "default: expected values of its type");
    expect(feature_.form.ragged || count == feature_.form.width,
           "default: expected as many values as a row has");
  }

  void check_sinks() const {
    expect(feature_.values.empty() || feature_.values.size() == feature_.keys_each(),
           "expected a place for each key of a value");
    expect(!feature_.makes_keys || makes_ids(), "expected a transform that makes keys");
    for (const TensorSink& sink : feature_.values) {
      expect(sink.tensor < tensors_.size(), "expected a tensor that there is");
      check_type(tensors_[sink.tensor].type);
      expect(!feature_.ragged || feature_.ragged->pad_to, "expected pad_to, as it fills a tensor");
      expect(!feature_.form.weighted, "expected no weights, as it fills a tensor");
    }
    if (!feature_.lengths) return;
    expect(feature_.form.ragged, "expected a ragged feature, as it has lengths");
    expect(feature_.lengths->tensor < tensors_.size(), "expected a tensor that there is");
    const NumberType type = tensors_[feature_.lengths->tensor].type;
    expect(type != NumberType::kString, "lengths: expected a tensor of numbers");
    expect(feature_.ragged->max_length <= static_cast<std::size_t>(range_of(type).high),
           "lengths: expected a tensor that holds max_length");
  }

  void check_type(NumberType type) const {
    if (!makes_ids() && feature_.form.type == ValueType::kString) {
      return expect(type == NumberType::kString, "expected a tensor of strings");
    }
    expect(type != NumberType::kString, "expected a tensor of numbers");
    const bool to_floats = type != NumberType::kInt32 && type != NumberType::kInt64;
    expect(makes_ids() || to_floats, "expected a tensor of floats");
    if (!feature_.ragged || !feature_.ragged->pad_to || to_floats) return;
    const double padding = feature_.ragged->padding;
    expect(std::trunc(padding) == padding && padding >= -0x1p63 && padding < 0x1p63 &&
               range_of(type).holds(static_cast<std::int64_t>(padding)),
           "padding: expected an integer that its tensor holds");
  }

  const Feature& feature_;
  std::span<const Tensor> tensors_;
};

// Which columns of every tensor are taken.
class Coverage {
 public:
  explicit Coverage(std::span<const Tensor> tensors) : tensors_(tensors) {
    for (const Tensor& tensor : tensors) taken_.emplace_back(tensor.columns, false);
  }

  void take(const Feature& feature, const TensorSink& sink, std::size_t count) {
    std::vector<bool>& taken = taken_[sink.tensor];
    const std::string where =
        "feature '" + feature.name + "': columns of '" + tensors_[sink.tensor].name + "'";
    if (sink.column > taken.size() || count > taken.size() - sink.column) {
      throw std::invalid_argument(where + ": expected some that there are");
    }
    for (std::size_t column = sink.column; column < sink.column + count; ++column) {
      if (taken[column]) throw std::invalid_argument(where + ": another feature fills them too");
      taken[column] = true;
    }
  }

  void expect_full() const {
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const std::vector<bool>& taken = taken_[tensor];
      if (!taken.empty() && std::find(taken.begin(), taken.end(), false) == taken.end()) continue;
      throw std::invalid_argument("tensor '" + tensors_[tensor].name +
                                  "': expected features that fill all of its columns");
    }
  }

 private:
  std::span<const Tensor> tensors_;
  std::vector<std::vector<bool>> taken_;
};

}  // namespace

void check_program(std::span<const Feature> features, std::span<const Tensor> tensors) {
  Coverage coverage(tensors);
  for (const Feature& feature : features) {
    const FeatureCheck check(feature, tensors);
    check.run();
    for (const TensorSink& sink : feature.values) coverage.take(feature, sink, check.columns());
    if (feature.lengths) coverage.take(feature, *feature.lengths, 1);
  }
  coverage.expect_full();
}

}  // namespace anabranch::features
