#include "store/segments/half.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace anabranch::store {

void f16_from_f32_portable(const float* values, std::size_t count, std::byte* halves) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t half = f16_from_f32(values[i]);
    std::memcpy(halves + 2 * i, &half, sizeof half);
  }
}

void f32_from_f16_portable(const std::byte* halves, std::size_t count, float* values) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, halves + 2 * i, sizeof half);
    values[i] = f32_from_f16(half);
  }
}

#if defined(__x86_64__)
namespace {

// Every processor with AVX2 has F16C, which compilers cannot all ask for by name.
bool has_f16c() noexcept {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

__attribute__((target("avx,f16c"))) void f16_from_f32_f16c(const float* values, std::size_t count,
                                                           std::byte* halves) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 2 * i), packed);
  }
  f16_from_f32_portable(values + i, count - i, halves + 2 * i);
}

__attribute__((target("avx,f16c"))) void f32_from_f16_f16c(const std::byte* halves,
                                                           std::size_t count,
                                                           float* values) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 2 * i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(packed));
  }
  f32_from_f16_portable(halves + 2 * i, count - i, values + i);
}

}  // namespace

void f16_from_f32(const float* values, std::size_t count, std::byte* halves) noexcept {
  (has_f16c() ? f16_from_f32_f16c : f16_from_f32_portable)(values, count, halves);
}

void f32_from_f16(const std::byte* halves, std::size_t count, float* values) noexcept {
  (has_f16c() ? f32_from_f16_f16c : f32_from_f16_portable)(halves, count, values);
}

#else

void f16_from_f32(const float* values, std::size_t count, std::byte* halves) noexcept {
  f16_from_f32_portable(values, count, halves);
}

void f32_from_f16(const std::byte* halves, std::size_t count, float* values) noexcept {
  f32_from_f16_portable(halves, count, values);
}

#endif

}  // namespace anabranch::store
