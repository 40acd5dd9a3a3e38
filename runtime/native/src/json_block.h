// Which bytes of a 64-byte block mean something to JSON's structure, one bit a byte.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace anabranch {

struct JsonBlock {
  std::uint64_t quotes;
  std::uint64_t backslashes;
  std::uint64_t commas;
  std::uint64_t opens;   // [ and {
  std::uint64_t closes;  // ] and }
};

#if defined(__SSE2__)

inline JsonBlock classify_json_block(const char* block) noexcept {
  JsonBlock found{};
  const auto mask = [](__m128i bytes, char wanted) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted)))));
  };
  for (int part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + part);
    // [ and { differ in bit 5 alone, as ] and } do.
    const __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    found.quotes |= mask(bytes, '"') << 16 * part;
    found.backslashes |= mask(bytes, '\\') << 16 * part;
    found.commas |= mask(bytes, ',') << 16 * part;
    found.opens |= mask(folded, '{') << 16 * part;
    found.closes |= mask(folded, '}') << 16 * part;
  }
  return found;
}

#else

inline JsonBlock classify_json_block(const char* block) noexcept {
  JsonBlock found{};
  for (int i = 0; i < 64; ++i) {
    const char c = block[i];
    const auto folded = static_cast<char>(c | 0x20);
    found.quotes |= std::uint64_t{c == '"'} << i;
    found.backslashes |= std::uint64_t{c == '\\'} << i;
    found.commas |= std::uint64_t{c == ','} << i;
    found.opens |= std::uint64_t{folded == '{'} << i;
    found.closes |= std::uint64_t{folded == '}'} << i;
  }
  return found;
}

#endif

}  // namespace anabranch
