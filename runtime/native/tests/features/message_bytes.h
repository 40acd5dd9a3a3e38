// Serialised columns, field by field, for tests.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch::testing {

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

inline std::string tag(std::uint64_t field, unsigned type) { return varint(field << 3 | type); }

inline std::string bytes_field(std::uint64_t field, std::string_view value) {
  return tag(field, 2) + varint(value.size()) + std::string(value);
}

inline std::string varint_field(std::uint64_t field, std::uint64_t value) {
  return tag(field, 0) + varint(value);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::string packed_int64s(const std::vector<std::int64_t>& values) {
  std::string bytes;
  for (const auto value : values) bytes += varint(static_cast<std::uint64_t>(value));
  return bytes_field(3, bytes);
}

inline std::string raw_int64s(const std::vector<std::int64_t>& values) {
  return varint_field(1, 1) + bytes_field(2, bytes_of(values));
}

inline std::string raw_floats(const std::vector<float>& values) {
  return varint_field(1, 2) + bytes_field(2, bytes_of(values));
}

inline std::string packed_floats(const std::vector<float>& values) {
  return bytes_field(4, bytes_of(values));
}

inline std::string strings(const std::vector<std::string>& values) {
  std::string bytes;
  for (const auto& value : values) bytes += bytes_field(5, value);
  return bytes;
}

inline std::string lengths(const std::vector<std::uint32_t>& values) {
  return bytes_field(6, bytes_of(values));
}

inline std::string weights(const std::vector<float>& values) {
  return bytes_field(7, bytes_of(values));
}

}  // namespace anabranch::testing
