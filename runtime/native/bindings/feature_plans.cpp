#include "feature_plans.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <utility>

using namespace anabranch::features;

namespace {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

constexpr Named<HashFunction> kHashFunctions[] = {
    {"xxh64", HashFunction::kXxh64},
    {"murmur3_x64_128_low", HashFunction::kMurmur3X64128Low},
    {"farmhash_fingerprint64", HashFunction::kFarmhashFingerprint64}};
constexpr Named<ValueType> kValueTypes[] = {
    {"int64", ValueType::kInt64}, {"float32", ValueType::kFloat32}, {"string", ValueType::kString}};
constexpr Named<Side> kSides[] = {{"user", Side::kUser}, {"candidate", Side::kCandidate}};
constexpr Named<Keep> kKeeps[] = {
    {"first", Keep::kFirst}, {"last", Keep::kLast}, {"error", Keep::kError}};
constexpr Named<NumberType> kNumberTypes[] = {
    {"INT32", NumberType::kInt32},  {"INT64", NumberType::kInt64},  {"FP16", NumberType::kFloat16},
    {"FP32", NumberType::kFloat32}, {"FP64", NumberType::kFloat64}, {"BYTES", NumberType::kString}};

template <class Value, std::size_t N>
Value find_named(const Named<Value> (&all)[N], std::string_view name) {
  for (const auto& [each, value] : all) {
    if (each == name) return value;
  }
  throw std::invalid_argument("'" + std::string(name) + "' is not available");
}

template <class T>
T field(nb::handle object, const char* name) {
  T value{};
  if (!nb::try_cast(object.attr(name), value)) {
    throw std::invalid_argument(std::string(name) + ": a value that this field cannot hold");
  }
  return value;
}

template <class Value, std::size_t N>
Value field(nb::handle object, const char* name, const Named<Value> (&all)[N]) {
  return find_named(all, field<std::string>(object, name));
}

TensorSink to_sink(nb::handle sink) {
  return {field<std::size_t>(sink, "tensor"), field<std::size_t>(sink, "column")};
}

Hash to_hash(nb::handle hash) {
  return {field(hash, "function", kHashFunctions), field<std::uint64_t>(hash, "seed"),
          field<std::uint64_t>(hash, "num_buckets")};
}

// One value: the id of `first_id`, and so on.
template <class Map, class Value>
void number_values(nb::handle vocabulary, Map& ids) {
  std::int64_t id = field<std::int64_t>(vocabulary, "first_id");
  for (auto& value : field<std::vector<Value>>(vocabulary, "values")) {
    ids.emplace(std::move(value), id++);
  }
}

Transform to_transform(nb::handle feature, ValueType type) {
  const std::string kind = field<std::string>(feature, "kind");
  const nb::object transform = feature.attr("transform");
  if (kind == "none") return {};
  if (kind == "hash") return to_hash(transform);
  if (kind == "hashes") {
    Hashes hashes;
    for (const nb::handle hash : transform) hashes.functions.push_back(to_hash(hash));
    return hashes;
  }
  if (kind == "bucketize") {
    return Bucketize{field<std::vector<double>>(transform, "boundaries")};
  }
  if (kind == "quotient_remainder") {
    return QuotientRemainder{field<std::int64_t>(transform, "num_buckets")};
  }
  if (kind != "vocabulary")
    throw std::invalid_argument("transform '" + kind + "' is not available");
  Vocabulary vocabulary;
  if (type == ValueType::kString) {
    number_values<decltype(vocabulary.strings), std::string>(transform, vocabulary.strings);
  } else {
    number_values<decltype(vocabulary.ints), std::int64_t>(transform, vocabulary.ints);
  }
  if (!transform.attr("unknown").is_none()) {
    vocabulary.unknown = field<std::int64_t>(transform, "unknown");
  }
  return vocabulary;
}

Default to_default(nb::handle feature, ValueType type) {
  Default value;
  if (type == ValueType::kInt64) {
    value.ints = field<std::vector<std::int64_t>>(feature, "default");
  } else if (type == ValueType::kFloat32) {
    for (const double number : field<std::vector<double>>(feature, "default")) {
      value.floats.push_back(static_cast<float>(number));
    }
  } else {
    value.strings = field<std::vector<std::string>>(feature, "default");
  }
  return value;
}

Ragged to_ragged(nb::handle ragged) {
  Ragged value;
  value.max_length = field<std::size_t>(ragged, "max_length");
  value.keep = field(ragged, "keep", kKeeps);
  if (!ragged.attr("pad_to").is_none()) value.pad_to = field<std::size_t>(ragged, "pad_to");
  value.padding = field<double>(ragged, "padding");
  return value;
}

Feature to_feature(nb::handle feature) {
  Feature value;
  value.name = field<std::string>(feature, "name");
  value.side = field(feature, "side", kSides);
  value.form.type = field(feature, "type", kValueTypes);
  value.form.width = field<std::size_t>(feature, "width");
  value.form.weighted = field<bool>(feature, "weighted");
  value.transform = to_transform(feature, value.form.type);
  if (!feature.attr("default").is_none()) {
    value.default_value = to_default(feature, value.form.type);
  }
  if (const nb::object ragged = feature.attr("ragged"); !ragged.is_none()) {
    value.ragged = to_ragged(ragged);
    value.form.ragged = true;
  }
  for (const nb::handle sink : nb::object(feature.attr("values"))) {
    value.values.push_back(to_sink(sink));
  }
  if (const nb::object lengths = feature.attr("lengths"); !lengths.is_none()) {
    value.lengths = to_sink(lengths);
  }
  value.makes_keys = field<bool>(feature, "makes_keys");
  return value;
}

}  // namespace

HashFunction hash_function(std::string_view name) { return find_named(kHashFunctions, name); }

Program to_program(nb::handle features, nb::handle tensors) {
  std::vector<Feature> all;
  std::vector<Tensor> filled;
  for (const nb::handle feature : features) all.push_back(to_feature(feature));
  for (const nb::handle tensor : tensors) {
    filled.push_back({field<std::string>(tensor, "name"), field(tensor, "datatype", kNumberTypes),
                      field<std::size_t>(tensor, "columns")});
  }
  return Program(std::move(all), std::move(filled));
}
