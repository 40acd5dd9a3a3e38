// Vectors of f32 in as many lanes as asked for, loaded from and stored to the row types.
//
// GCC and Clang vector extensions carry all arithmetic, so that every instruction set computes the
// same operations in the same order and gives the same bits. Only half precision has instructions
// of its own. Included by the kernels alone; see kernel.h on why everything is in an unnamed
// namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anabranch/store/rows.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace anabranch::store::lookup {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

template <class T, int L>
struct VectorOf {
  using Type __attribute__((vector_size(sizeof(T) * L))) = T;
};
template <class T>
struct VectorOf<T, 1> {
  using Type = T;
};
template <class T, int L>
using Vector = typename VectorOf<T, L>::Type;
template <int L>
using Floats = Vector<float, L>;

template <class V>
[[gnu::always_inline]] inline V load(const void* at) noexcept {
  V value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

template <class V>
[[gnu::always_inline]] inline void store(void* at, V value) noexcept {
  __builtin_memcpy(at, &value, sizeof value);
}

template <class To, class From>
[[gnu::always_inline]] inline To bits(From value) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}

// Lane by lane, as a cast.
template <class To, class From>
[[gnu::always_inline]] inline To convert(From value) noexcept {
  if constexpr (sizeof(To) == sizeof(float)) {
    return static_cast<To>(value);
  } else {
    return __builtin_convertvector(value, To);
  }
}

// The greater number; the second where they do not compare.
template <class V>
[[gnu::always_inline]] inline V greater(V a, V b) noexcept {
  return a > b ? a : b;
}

template <int L>
[[gnu::always_inline]] inline Floats<L> load_half(const std::byte* at) noexcept {
#if defined(__AVX512F__)
  if constexpr (L == 16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
#endif
#if defined(__AVX2__)
  if constexpr (L == 8) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  if constexpr (L == 4) return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  if constexpr (L == 1) return _cvtsh_ss(load<std::uint16_t>(at));
#endif
  // The exponent moves to the place of an f32's, 112 too low; a multiplication by 2^112 corrects
  // it, subnormal numbers included. Infinities and NaN get the highest exponent.
  using Words = Vector<std::uint32_t, L>;
  const auto half = convert<Words>(load<Vector<std::uint16_t, L>>(at));
  const Words magnitude = (half & 0x7fff) << 13;
  const auto scaled = bits<Words>(bits<Floats<L>>(magnitude) * 0x1p112f);
  const Words special = (half & 0x7c00) == 0x7c00 ? Words{} + 0x7f800000u : Words{};
  return bits<Floats<L>>(scaled | special | (half & 0x8000) << 16);
}

// To the nearest binary16, ties to even.
inline std::uint16_t half_of(float value) noexcept {
  const auto word = bits<std::uint32_t>(value);
  const std::uint32_t sign = word >> 16 & 0x8000;
  std::uint32_t magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    magnitude = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 2^16
    magnitude = 0x7c00;
  } else if (magnitude < 0x38800000) {  // 2^-14: the addition rounds to a multiple of 2^-24
    magnitude = bits<std::uint32_t>(bits<float>(magnitude) + 0.5f) - 0x3f000000;
  } else {
    magnitude = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | magnitude);
}

template <int L>
[[gnu::always_inline]] inline void store_half(std::byte* at, Floats<L> value) noexcept {
#if defined(__AVX512F__)
  if constexpr (L == 16) {
    const __m256i half = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    return store(at, half);
  }
#endif
#if defined(__AVX2__)
  if constexpr (L == 8) return store(at, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  if constexpr (L == 4) {
    return store(at, _mm_cvtsi128_si64(_mm_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)));
  }
  if constexpr (L == 1) {
    return store(at, static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)));
  }
#endif
  if constexpr (L == 1) {
    store(at, half_of(value));
  } else {
    for (int lane = 0; lane < L; ++lane) store(at + 2 * lane, half_of(value[lane]));
  }
}

// Numbers of one row.
template <RowType T, int L>
struct RowValues {
  const std::byte* row;

  explicit RowValues(const std::byte* at) noexcept : row(at) {}
  [[gnu::always_inline]] Floats<L> at(std::uint32_t column) const noexcept {
    if constexpr (T == RowType::kF32) return load<Floats<L>>(row + 4 * std::size_t{column});
    if constexpr (T == RowType::kF16) return load_half<L>(row + 2 * std::size_t{column});
    if constexpr (T == RowType::kBf16) {
      using Words = Vector<std::uint32_t, L>;
      const auto upper = load<Vector<std::uint16_t, L>>(row + 2 * std::size_t{column});
      return bits<Floats<L>>(convert<Words>(upper) << 16);
    }
  }
};

template <int L>
struct RowValues<RowType::kInt8, L> {
  const std::byte* row;
  float scale;
  float bias;

  explicit RowValues(const std::byte* at) noexcept
      : row(at + RowFormat::kInt8Header), scale(load_half<1>(at)), bias(load_half<1>(at + 2)) {}
  // The product is exact (11 by 8 bits), so there is one rounding, fused or not.
  [[gnu::always_inline]] Floats<L> at(std::uint32_t column) const noexcept {
    const auto q = load<Vector<std::int8_t, L>>(row + column);
    return convert<Floats<L>>(convert<Vector<std::int32_t, L>>(q)) * scale + bias;
  }
};

}  // namespace
}  // namespace anabranch::store::lookup
