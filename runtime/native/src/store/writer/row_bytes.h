// Bytes of a row on their way into an arena.
//
// Thread-safety: pure functions over memory of the caller's.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define ANABRANCH_STREAMS_ROWS 1
#endif

namespace anabranch::store {

inline constexpr std::size_t kCacheLine = 64;

#ifdef ANABRANCH_STREAMS_ROWS

// Rows of whole cache lines go past the caches: what is there already need not be read, and
// readers want them only after the switch. Not where ThreadSanitizer has to see the stores.
constexpr bool streams(std::size_t bytes) noexcept { return bytes % kCacheLine == 0; }

// Orders streamed rows before everything that is stored later.
inline void finish_rows() noexcept { _mm_sfence(); }

inline void write_row(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (!streams(bytes)) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (std::size_t at = 0; at < bytes; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
}

#else

constexpr bool streams(std::size_t) noexcept { return false; }
inline void finish_rows() noexcept {}
inline void write_row(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

#endif

// Asks for the lines of a row that is about to be written.
inline void prefetch_row(const std::byte* row, std::size_t bytes) noexcept {
  if (streams(bytes)) return;
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(row + at, 1);
}

}  // namespace anabranch::store
