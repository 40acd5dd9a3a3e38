// Programs and columns that tests run.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anabranch/features/program.h"

namespace anabranch::features {

inline constexpr ColumnLimits kLimits{65536, 1000000, 1 << 20};

inline Feature candidate(std::string name, ValueType type = ValueType::kInt64) {
  Feature feature;
  feature.name = std::move(name);
  feature.side = Side::kCandidate;
  feature.form.type = type;
  return feature;
}

// Its keys come out flat.
inline Feature with_keys(Feature feature, Transform transform) {
  feature.transform = std::move(transform);
  feature.makes_keys = true;
  return feature;
}

inline Feature ragged(Feature feature, Ragged limits) {
  feature.ragged = limits;
  feature.form.ragged = true;
  return feature;
}

inline SentColumn json(std::string_view text) { return JsonText{text}; }

template <class T>
std::vector<T> numbers(const AlignedBuffer& buffer) {
  std::vector<T> all(buffer.size_bytes() / sizeof(T));
  if (!all.empty()) std::memcpy(all.data(), buffer.data(), buffer.size_bytes());
  return all;
}

}  // namespace anabranch::features
