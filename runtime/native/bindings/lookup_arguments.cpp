#include "lookup_arguments.h"

#include <algorithm>
#include <limits>
#include <string>

#include "store.h"

using namespace anabranch::store;

namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

std::string label(const LookupSpec& spec, const char* part) {
  return "feature '" + spec.feature + "', " + part;
}

// Unsigned 64-bit ids are the same bits as signed ones.
void expect_ids(const ArrayView& ids, IdType type) {
  switch (type) {
    case IdType::kInt32:
      return ids.expect_type(ElementType::kInt32);
    case IdType::kInt64:
      return ids.expect_key_type();
    case IdType::kFloat32:
      return ids.expect_type(ElementType::kFloat32);
    case IdType::kFloat64:
      return ids.expect_type(ElementType::kFloat64);
  }
}

// Whether two arrays share bytes, the gaps between their rows counted.
bool overlap(const ArrayView& a, const ArrayView& b) {
  const auto [a_begin, a_end] = a.reach();
  const auto [b_begin, b_end] = b.reach();
  return a_begin < b_end && b_begin < a_end;
}

}  // namespace

BoundFeature::BoundFeature(const LookupSpec& spec, std::uint32_t dim, nb::handle ids,
                           nb::handle bag, nb::handle weights)
    : ids_(label(spec, "ids"), ids) {
  expect_ids(ids_, spec.id_type);
  input_.ids = ids_.data();
  const std::size_t row_bytes = dim * sizeof(float);
  if (spec.bag == BagForm::kFixed) {
    if (!bag.is_none()) throw Refused(label(spec, "bag: its rows are of fixed length"));
    bind_fixed(spec);
    bytes_each_ = spec.max_length * row_bytes;
  } else {
    bind_ragged(spec, bag);
    bytes_flat_ = static_cast<std::size_t>(input_.id_count) * row_bytes;
  }
  if (weights.is_none() == spec.weighted) {
    throw Refused(label(spec, "weights: ") + (spec.weighted ? "missing" : "the plan has none"));
  }
  if (!spec.weighted) return;
  weights_.emplace(label(spec, "weights"), weights);
  weights_->expect_type(ElementType::kFloat32);
  weights_->expect_contiguous(weights_->axes());
  const auto count = static_cast<std::int64_t>(weights_->size_bytes() / sizeof(float));
  if (spec.bag == BagForm::kFixed) {
    reach_ = std::min(reach_, count / spec.max_length);
  } else if (count != input_.id_count) {
    throw Refused(weights_->what() + ": " + std::to_string(count) + " for " +
                  std::to_string(input_.id_count) + " ids");
  }
  input_.weights = static_cast<const float*>(weights_->data());
}

void BoundFeature::bind_fixed(const LookupSpec& spec) {
  if (ids_.axes() == 2) {
    ids_.expect_extent(1, spec.max_length);
    if (!ids_.is_contiguous(1)) {
      throw Refused(ids_.what() + ": expected the ids of a row one after another; copy the array");
    }
  } else if (spec.max_length != 1) {
    throw Refused(ids_.what() + ": expected [rows, " + std::to_string(spec.max_length) +
                  "], got one axis");
  }
  input_.ids_stride = ids_.extent(0) > 1 ? ids_.stride(0) : spec.max_length;
  reach_ = ids_.extent(0);
}

void BoundFeature::bind_ragged(const LookupSpec& spec, nb::handle bag) {
  ids_.expect_contiguous(1);
  input_.id_count = ids_.extent(0);
  if (bag.is_none()) throw Refused(label(spec, "bag: missing"));
  bag_.emplace(label(spec, "bag"), bag);
  bag_->expect_type(spec.bag_type == IdType::kInt32 ? ElementType::kInt32 : ElementType::kInt64);
  bag_->expect_contiguous(1);
  input_.bag = bag_->data();
  input_.bag_count = bag_->extent(0);
  reach_ = bag_->extent(0);
}

BoundArguments::BoundArguments(const BoundPlan& plan, nb::handle features, nb::handle outputs)
    : plan_(&plan) {
  const auto specs = plan.plan.lookups();
  const auto buffers = plan.plan.buffers();
  if (nb::len(features) != specs.size() || nb::len(outputs) != buffers.size()) {
    throw Refused("expected " + std::to_string(specs.size()) + " features and " +
                  std::to_string(buffers.size()) + " outputs, got " +
                  std::to_string(nb::len(features)) + " and " + std::to_string(nb::len(outputs)));
  }
  features_.resize(specs.size());
  outputs_.resize(buffers.size());
  keys_.resize(specs.size());
  misses_.resize(specs.size());
  arguments_.features.resize(specs.size());
  arguments_.outputs.resize(buffers.size());
  arguments_.keys = keys_.data();
  arguments_.misses = misses_.data();
  for (std::size_t i = 0; i < buffers.size(); ++i) bind_output(i, outputs[i]);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const nb::object arrays = features[i];
    features_[i] = std::make_unique<BoundFeature>(
        specs[i], plan.dims[i], nb::object(arrays.attr("ids")), nb::object(arrays.attr("bag")),
        nb::object(arrays.attr("weights")));
    arguments_.features[i] = features_[i]->input();
    if (features_[i]->bag() != nullptr) expect_apart(*features_[i]->bag());
  }
  measure();
}

void BoundArguments::expect_apart(const ArrayView& array) const {
  for (const auto& output : outputs_) {
    if (overlap(*output, array)) {
      throw Refused(array.what() + ": a run that writes " + output->what() +
                    " would change it; give it memory of its own");
    }
  }
}

void BoundArguments::bind_output(std::size_t index, nb::handle output) {
  const BufferSpec& buffer = plan_->plan.buffers()[index];
  auto array = std::make_unique<ArrayView>("output " + std::to_string(index), output, true);
  array->expect_type(buffer.type == OutputType::kF16 ? ElementType::kFloat16
                                                     : ElementType::kFloat32);
  if (array->axes() != 2) throw Refused(array->what() + ": expected two axes");
  array->expect_extent(1, static_cast<std::int64_t>(buffer.columns));
  const auto columns = static_cast<std::int64_t>(buffer.columns);
  const std::int64_t stride = array->extent(0) > 1 ? array->stride(0) : columns;
  if (!array->is_contiguous(1) || stride < columns) {
    throw Refused(array->what() + ": expected rows apart, with their columns one after another");
  }
  arguments_.outputs[index] = {array->data(), stride};
  outputs_[index] = std::move(array);
}

void BoundArguments::bind(std::size_t index, nb::handle ids, nb::handle bag, nb::handle weights) {
  if (index >= features_.size()) {
    throw Refused("there is no feature " + std::to_string(index) + ": the plan has " +
                  std::to_string(features_.size()));
  }
  auto feature = std::make_unique<BoundFeature>(plan_->plan.lookups()[index], plan_->dims[index],
                                                ids, bag, weights);
  if (feature->bag() != nullptr) expect_apart(*feature->bag());
  const Turn turn(taken_, "the lookup's arguments");
  arguments_.features[index] = feature->input();
  features_[index] = std::move(feature);
  is_measured_ = false;
}

void BoundArguments::measure() {
  is_measured_ = true;
  most_rows_ = most_users_ = kUnbounded;
  row_bytes_ = user_bytes_ = flat_bytes_ = 0;
  const auto specs = plan_->plan.lookups();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const bool row_side = specs[i].side == Side::kRow;
    auto& most = row_side ? most_rows_ : most_users_;
    most = std::min(most, features_[i]->reach());
    (row_side ? row_bytes_ : user_bytes_) += features_[i]->bytes_each();
    flat_bytes_ += features_[i]->bytes_flat();
  }
  const auto buffers = plan_->plan.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    auto& most = buffers[i].side == Side::kRow ? most_rows_ : most_users_;
    most = std::min(most, outputs_[i]->extent(0));
  }
}

void BoundArguments::run(const BoundPlan& plan, std::uint32_t version, std::int64_t rows,
                         std::int64_t users, nb::handle user_index) {
  if (&plan != plan_) throw Refused("the arguments belong to another plan");
  const Turn turn(taken_, "the lookup's arguments");
  if (!is_measured_) measure();
  if (rows < 0 || rows > most_rows_ || users < 0 || users > most_users_) {
    throw Refused("rows " + std::to_string(rows) + ", users " + std::to_string(users) +
                  ": the arrays have " + std::to_string(most_rows_) + " and " +
                  std::to_string(most_users_));
  }
  Batch batch{.version = version, .rows = rows, .users = users};
  std::optional<ArrayView> index;
  if (!user_index.is_none()) {
    index.emplace("user_index", user_index);
    index->expect_type(ElementType::kInt64);
    index->expect_contiguous(1);
    index->expect_extent(0, rows);
    expect_apart(*index);
    batch.user_index = static_cast<const std::int64_t*>(index->data());
  }
  const std::size_t work = static_cast<std::size_t>(rows) * row_bytes_ +
                           static_cast<std::size_t>(users) * user_bytes_ + flat_bytes_;
  run_on(work, [&] { refusing([&] { plan.plan.run(arguments_, batch); }); });
}
