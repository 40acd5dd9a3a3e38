// Decimals of up to sixteen characters in one step, on processors with SSE4.1.
#pragma once

#if defined(__x86_64__)

#include <smmintrin.h>

#include <algorithm>

#include "json_decimal.h"

namespace anabranch::json_detail {

struct Sse41Decimals {
  [[gnu::target("sse4.1")]] static const char* take(const char* at, Decimal& decimal) noexcept {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i values = _mm_sub_epi8(text, _mm_set1_epi8('0'));
    const auto digits = static_cast<unsigned>(
        _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(values, _mm_set1_epi8(9)), values)));
    const auto points =
        static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(text, _mm_set1_epi8('.'))));
    // The decimal is the run of digits, with the first point if that is among them.
    const int run = std::countr_one(digits | (points & -points));
    const int point = std::min(std::countr_zero(points | 1u << 16), run);
    const int fraction = run - std::min(point + 1, run);
    const int count = point + fraction;
    if (is_malformed(at, point) || (point < run && fraction == 0)) return nullptr;

    decimal = {right_digits(values, point, count), -fraction};
    if (run < 16) return at + run;

    // The rest of a longer one.
    const int more = take_digits(at + 16, decimal.digits);
    const char* const end = at + 16 + more;
    if ((point == 16 && *end == '.') || is_too_long(at, count + more)) return nullptr;
    if (point < 16) decimal.power -= more;
    return end;
  }

 private:
  // The number that `count` digits are, the one at `point` left out.
  [[gnu::target("sse4.1")]] static std::uint64_t right_digits(__m128i values, int point,
                                                              int count) noexcept {
    const __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    // Where each byte comes from when the last digit moves to the right end; negative means zero.
    __m128i from = _mm_add_epi8(places, _mm_set1_epi8(static_cast<char>(count - 16)));
    from = _mm_sub_epi8(from, _mm_cmpgt_epi8(from, _mm_set1_epi8(static_cast<char>(point - 1))));
    __m128i sums = _mm_shuffle_epi8(values, from);
    // Two digits in each sum, then four, then eight.
    sums = _mm_maddubs_epi16(sums, _mm_set1_epi16(1 << 8 | 10));
    sums = _mm_madd_epi16(sums, _mm_set1_epi32(1 << 16 | 100));
    sums = _mm_madd_epi16(_mm_packus_epi32(sums, sums), _mm_set1_epi32(1 << 16 | 10000));
    const auto halves = static_cast<std::uint64_t>(_mm_cvtsi128_si64(sums));
    return (halves & 0xFFFFFFFF) * 100000000 + (halves >> 32);
  }
};

// Flattened, so that everything in it may use the instructions.
template <class T>
[[gnu::target("sse4.1"), gnu::flatten]] RunEnd<T> take_numbers_sse41(const char* at,
                                                                     const char* end, T* next,
                                                                     T* last) noexcept {
  return take_numbers<Sse41Decimals>(at, end, next, last);
}

}  // namespace anabranch::json_detail

#endif
