// From a datatype's value to its C++ type.
#pragma once

#include <cstdint>

#include "anabranch/json_numbers.h"

namespace anabranch::json_detail {

template <class T>
inline constexpr Datatype kDatatype = Datatype::kBool;
template <>
inline constexpr Datatype kDatatype<std::int8_t> = Datatype::kInt8;
template <>
inline constexpr Datatype kDatatype<std::int16_t> = Datatype::kInt16;
template <>
inline constexpr Datatype kDatatype<std::int32_t> = Datatype::kInt32;
template <>
inline constexpr Datatype kDatatype<std::int64_t> = Datatype::kInt64;
template <>
inline constexpr Datatype kDatatype<std::uint8_t> = Datatype::kUint8;
template <>
inline constexpr Datatype kDatatype<std::uint16_t> = Datatype::kUint16;
template <>
inline constexpr Datatype kDatatype<std::uint32_t> = Datatype::kUint32;
template <>
inline constexpr Datatype kDatatype<std::uint64_t> = Datatype::kUint64;
template <>
inline constexpr Datatype kDatatype<float> = Datatype::kFp32;
template <>
inline constexpr Datatype kDatatype<double> = Datatype::kFp64;

// Calls `visitor` with a value of the C++ type that carries `datatype`.
template <class Visitor>
decltype(auto) visit_datatype(Datatype datatype, Visitor&& visitor) {
  switch (datatype) {
    case Datatype::kBool:
      return visitor(bool{});
    case Datatype::kInt8:
      return visitor(std::int8_t{});
    case Datatype::kInt16:
      return visitor(std::int16_t{});
    case Datatype::kInt32:
      return visitor(std::int32_t{});
    case Datatype::kInt64:
      return visitor(std::int64_t{});
    case Datatype::kUint8:
      return visitor(std::uint8_t{});
    case Datatype::kUint16:
      return visitor(std::uint16_t{});
    case Datatype::kUint32:
      return visitor(std::uint32_t{});
    case Datatype::kUint64:
      return visitor(std::uint64_t{});
    case Datatype::kFp32:
      return visitor(float{});
    case Datatype::kFp64:
      return visitor(double{});
  }
  __builtin_unreachable();
}

}  // namespace anabranch::json_detail
