// Numbers out of bytes, as the hash functions read them: little-endian and anywhere.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace anabranch::features {

static_assert(std::endian::native == std::endian::little);

inline std::uint64_t load64(const char* bytes) noexcept {
  std::uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline std::uint32_t load32(const char* bytes) noexcept {
  std::uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline std::uint8_t load8(const char* bytes) noexcept { return static_cast<std::uint8_t>(*bytes); }

}  // namespace anabranch::features
