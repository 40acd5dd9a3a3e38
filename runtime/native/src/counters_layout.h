// Where things are in a counters page: docs/formats.md, section "Counters page", in C++.
//
// Every word of the page is read and written as a 64-bit atomic. A record is rewritten under its
// sequence word: odd while the writer is at it, then the next even number. Writers store the words
// of a record with release and readers load them with acquire, so a reader that saw any word of the
// new text also sees that the sequence moved (H. Boehm, "Can Seqlocks Get Along With Programming
// Language Memory Models?", MSPC 2012, section 4, without fences).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "anabranch/crc32c.h"

namespace anabranch::counters_layout {

static_assert(std::endian::native == std::endian::little, "the page is little-endian");
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint64_t kMagic = 0x52544E4342414E41;  // "ANABCNTR"
inline constexpr std::uint32_t kFormat = 1;
inline constexpr std::size_t kGranule = 64;  // records and value blocks are multiples of it
inline constexpr std::size_t kPageStep = 4096;

// Words of the page header, each at 8 times its number.
inline constexpr std::size_t kHeaderBytes = 64;
enum HeaderWord : std::size_t {
  kMagicWord = 0,
  kFormatWord = 1,  // low half: format; high half: header bytes
  kPageBytesWord = 2,
  kDirectoryEndWord = 3,
  kValuesBeginWord = 4,
};

// Words of a record header; the text follows.
inline constexpr std::size_t kRecordHeaderBytes = 40;
enum RecordWord : std::size_t {
  kSequenceWord = 0,
  kSizeWord = 1,  // low half: record bytes; high half: words of its value block
  kValuesWord = 2,
  kKindWord = 3,  // low half: kind, 0 when retired; high half: text bytes
  kChecksumWord = 4,
};

// A counter is the sum of a whole and a fractional word; a histogram's sum comes before its
// buckets.
inline constexpr std::size_t kCounterWords = 2;
inline constexpr std::size_t kGaugeWords = 1;

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}
constexpr std::uint64_t pack(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}
constexpr std::uint32_t low_half(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t high_half(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

inline std::uint64_t load(const std::uint64_t* word, std::memory_order order) noexcept {
  // The reference is only loaded from: read-only mappings are fine.
  return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(word)).load(order);
}

inline void store(std::uint64_t* word, std::uint64_t value, std::memory_order order) noexcept {
  std::atomic_ref<std::uint64_t>(*word).store(value, order);
}

// CRC32C of the size, values and kind words and the text.
inline std::uint32_t record_checksum(const std::uint64_t* words, std::string_view text) noexcept {
  std::uint64_t copy[3];
  for (int i = 0; i < 3; ++i) copy[i] = load(words + kSizeWord + i, std::memory_order_acquire);
  return crc32c(std::as_bytes(std::span(text)), crc32c(std::as_bytes(std::span(copy))));
}

}  // namespace anabranch::counters_layout
