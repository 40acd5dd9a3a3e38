// Which integers every type of tensor holds exactly.
//
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "anabranch/features/feature.h"

namespace anabranch::features {

struct NumberRange {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();

  constexpr bool holds(std::int64_t value) const noexcept { return low <= value && value <= high; }
};

constexpr NumberRange range_of(NumberType type) noexcept {
  switch (type) {
    case NumberType::kInt32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case NumberType::kFloat16:
      return {-(1 << 11), 1 << 11};
    case NumberType::kFloat32:
      return {-(1 << 24), 1 << 24};
    case NumberType::kFloat64:
      return {-(std::int64_t{1} << 53), std::int64_t{1} << 53};
    case NumberType::kInt64:
    case NumberType::kString:
      break;
  }
  return {};
}

constexpr std::string_view to_name(NumberType type) noexcept {
  switch (type) {
    case NumberType::kInt32:
      return "INT32";
    case NumberType::kInt64:
      return "INT64";
    case NumberType::kFloat16:
      return "FP16";
    case NumberType::kFloat32:
      return "FP32";
    case NumberType::kFloat64:
      return "FP64";
    case NumberType::kString:
      break;
  }
  return "BYTES";
}

constexpr std::size_t bytes_of(NumberType type) noexcept {
  switch (type) {
    case NumberType::kFloat16:
      return 2;
    case NumberType::kInt32:
    case NumberType::kFloat32:
      return 4;
    case NumberType::kInt64:
    case NumberType::kFloat64:
      return 8;
    case NumberType::kString:
      break;
  }
  return 0;
}

}  // namespace anabranch::features
