// The implementation that uses the processor's CRC32C instruction, where this build has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
#define ANABRANCH_CRC32C_HARDWARE 1

namespace anabranch::crc32c_detail {

#if defined(__x86_64__)
inline constexpr std::string_view kHardwareName = "sse4.2";
#else
inline constexpr std::string_view kHardwareName = "armv8-crc";
#endif

std::uint32_t hardware(std::span<const std::byte> data, std::uint32_t crc) noexcept;

}  // namespace anabranch::crc32c_detail

#endif
