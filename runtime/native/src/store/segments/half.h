// Conversion between f32 and the two 16-bit floats of rows, as IEEE 754 does it: round to nearest,
// ties to even, overflow to infinity, subnormals kept. A NaN stays a NaN of the same sign and upper
// payload, and becomes quiet: what the F16C instructions do.
//
// Thread-safety: pure functions, which expect the default rounding mode.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace anabranch::store {

inline constexpr float kMaxF16 = 65504.0F;

constexpr std::uint16_t f16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    magnitude = 0x7E00 | (magnitude >> 13 & 0x3FF);
  } else if (magnitude >= 0x477FF000) {  // 65520, half way from the greatest number to 2^16
    magnitude = 0x7C00;
  } else if (magnitude < 0x38800000) {  // 2^-14: below it steps are 2^-24, as those of 0.5 in f32
    magnitude = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
  } else {
    magnitude += 0xFFF + (magnitude >> 13 & 1);
    magnitude = (magnitude - 0x38000000) >> 13;
  }
  return static_cast<std::uint16_t>(sign | magnitude);
}

constexpr float f32_from_f16(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7FFFu;
  std::uint32_t bits = 0;
  if (magnitude > 0x7C00) {
    bits = 0x7FC00000 | (magnitude & 0x3FF) << 13;
  } else if (magnitude == 0x7C00) {
    bits = 0x7F800000;
  } else if (magnitude < 0x400) {
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  } else {
    bits = (magnitude << 13) + 0x38000000;
  }
  return std::bit_cast<float>(sign | bits);
}

constexpr std::uint16_t bf16_from_f32(float value) noexcept {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  bits = is_nan ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

constexpr float f32_from_bf16(std::uint16_t upper) noexcept {
  return std::bit_cast<float>(std::uint32_t{upper} << 16);
}

// Many at once, by the processor's instructions where it has them. The memory of 16-bit floats
// need not be aligned.
void f16_from_f32(const float* values, std::size_t count, std::byte* halves) noexcept;
void f32_from_f16(const std::byte* halves, std::size_t count, float* values) noexcept;

// The portable form of the two above, which tests compare them with.
void f16_from_f32_portable(const float* values, std::size_t count, std::byte* halves) noexcept;
void f32_from_f16_portable(const std::byte* halves, std::size_t count, float* values) noexcept;

}  // namespace anabranch::store
