// The names by which Python calls the closed sets of the embedding store.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "anabranch/store/errors.h"
#include "anabranch/store/lookup.h"
#include "anabranch/store/segment.h"

template <class Value>
using Name = std::pair<std::string_view, Value>;

inline constexpr Name<anabranch::store::RowType> kRowTypes[] = {
    {"f32", anabranch::store::RowType::kF32},
    {"f16", anabranch::store::RowType::kF16},
    {"bf16", anabranch::store::RowType::kBf16},
    {"int8", anabranch::store::RowType::kInt8}};
inline constexpr Name<anabranch::store::KeyKind> kKeyKinds[] = {
    {"hashed", anabranch::store::KeyKind::kHashed},
    {"dense_id", anabranch::store::KeyKind::kDenseId}};
inline constexpr Name<anabranch::store::Duplicates> kDuplicates[] = {
    {"refuse", anabranch::store::Duplicates::kRefuse},
    {"last_wins", anabranch::store::Duplicates::kLastWins}};
inline constexpr Name<anabranch::store::Residency> kResidencies[] = {
    {"lazy", anabranch::store::Residency::kLazy},
    {"populated", anabranch::store::Residency::kPopulated},
    {"locked", anabranch::store::Residency::kLocked}};
inline constexpr Name<anabranch::store::IdType> kIdTypes[] = {
    {"int32", anabranch::store::IdType::kInt32},
    {"int64", anabranch::store::IdType::kInt64},
    {"float32", anabranch::store::IdType::kFloat32},
    {"float64", anabranch::store::IdType::kFloat64}};
inline constexpr Name<anabranch::store::Combiner> kCombiners[] = {
    {"none", anabranch::store::Combiner::kNone},
    {"sum", anabranch::store::Combiner::kSum},
    {"mean", anabranch::store::Combiner::kMean},
    {"sqrtn", anabranch::store::Combiner::kSqrtn},
    {"max", anabranch::store::Combiner::kMax}};
inline constexpr Name<anabranch::store::Side> kSides[] = {{"row", anabranch::store::Side::kRow},
                                                          {"user", anabranch::store::Side::kUser}};
inline constexpr Name<anabranch::store::OutputType> kOutputTypes[] = {
    {"f32", anabranch::store::OutputType::kF32}, {"f16", anabranch::store::OutputType::kF16}};
inline constexpr Name<anabranch::store::BagForm> kBagForms[] = {
    {"fixed", anabranch::store::BagForm::kFixed},
    {"lengths", anabranch::store::BagForm::kLengths},
    {"offsets", anabranch::store::BagForm::kOffsets}};
inline constexpr Name<anabranch::store::MissingPolicy> kMissingPolicies[] = {
    {"zeros", anabranch::store::MissingPolicy::kZeros},
    {"vector", anabranch::store::MissingPolicy::kVector},
    {"key", anabranch::store::MissingPolicy::kKey},
    {"error", anabranch::store::MissingPolicy::kError},
    {"original", anabranch::store::MissingPolicy::kOriginal}};

// The value of `name`. Throws Refused, listing the names there are.
template <class Value, std::size_t N>
Value named(const Name<Value> (&names)[N], std::string_view name, std::string_view what) {
  std::string known;
  for (const auto& [each, value] : names) {
    if (each == name) return value;
    known.append(known.empty() ? "" : ", ").append(each);
  }
  throw anabranch::store::Refused(std::string(what) + " '" + std::string(name) +
                                  "': expected one of " + known);
}

template <class Value, std::size_t N>
constexpr std::string_view name_of(const Name<Value> (&names)[N], Value value) noexcept {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "unknown";
}
