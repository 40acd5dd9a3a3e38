// The bytes of a segment file, as docs/formats.md, "Segments", specifies them.
//
// Thread-safety: constants, plain values and pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace anabranch::store::segment_layout {

static_assert(std::endian::native == std::endian::little, "segments are little-endian");

inline constexpr char kMagic[8] = {'A', 'N', 'A', 'B', 'S', 'E', 'G', 'M'};
inline constexpr char kFooterMagic[8] = {'A', 'N', 'A', 'B', 'S', 'E', 'N', 'D'};
inline constexpr std::uint32_t kEndianTag = 0x01020304;
inline constexpr std::uint32_t kFormat = 1;

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;  // one checksum each
inline constexpr std::uint64_t kAlignment = 64;                       // of every section
// A section of at least this size begins at a multiple of it.
inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;
inline constexpr std::uint32_t kMaxTables = 1u << 16;
inline constexpr std::uint32_t kMaxNameBytes = 512;

struct Header {
  char magic[8];
  std::uint32_t endian_tag;
  std::uint32_t format;
  std::uint64_t file_bytes;
  std::uint64_t model_version;
  std::uint64_t off_directory;
  std::uint64_t directory_bytes;
  std::uint64_t off_checksums;
  std::uint32_t tables;
  std::uint32_t directory_crc;
  std::uint32_t checksums_crc;
  std::byte reserved[4024];
  std::uint32_t crc;  // of all bytes before it
};
static_assert(sizeof(Header) == 4096 && offsetof(Header, crc) == 4092);

struct Record {
  std::uint64_t off_rows;
  std::uint64_t off_keys;
  std::uint64_t off_index;
  std::uint64_t groups;
  std::uint64_t seed;
  std::uint32_t rows;
  std::uint32_t dim;
  std::uint32_t row_type;
  std::uint32_t key_kind;
  std::uint32_t name_offset;  // from the directory's beginning
  std::uint32_t name_bytes;
};
static_assert(sizeof(Record) == 64);

struct Footer {
  char magic[8];
  std::uint32_t header_crc;
  std::uint32_t checksums_crc;
};
static_assert(sizeof(Footer) == 16);

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}
// What the offset of a section of so many bytes is a multiple of.
constexpr std::uint64_t section_alignment(std::uint64_t bytes) noexcept {
  return bytes >= kHugePage ? kHugePage : kAlignment;
}
// Blocks of a file whose checksums begin at `off_checksums`.
constexpr std::uint64_t block_count(std::uint64_t off_checksums) noexcept {
  return round_up(off_checksums, kBlockBytes) / kBlockBytes;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace anabranch::store::segment_layout
