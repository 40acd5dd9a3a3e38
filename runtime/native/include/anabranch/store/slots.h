// Index slots: how a 64-bit key finds the number of its row, and at which store version.
//
// An index is an array of groups; a group is one cache line of four slots. A key's home is group
// `home_group(key, ...)`; it lies there or in one of the groups behind it (wrapping around), which
// it reached because every group before had overflowed. Keys 0 (an empty slot) and 2^64-1 (a dead
// slot) never lie in the groups: they have the two side slots behind the last group.
//
// `rv` of a slot: row number in bits 0..30, tombstone in bit 31, store version in bits 32..62.
// Bit 63 of the FIRST slot of a group says that the group overflowed once; it is set before any key
// is written behind the group, and never cleared. rv without bit 63 is 0 where nothing is visible.
//
// Thread-safety: words are read and written through std::atomic_ref as docs/formats.md,
// "Generations", says; the functions here are pure.
// Source: open addressing with linear probing over cache lines; the overflow bit ends a miss.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anabranch::store {

struct Slot {
  std::uint64_t key;
  std::uint64_t rv;
};
inline constexpr std::size_t kSlotsPerGroup = 4;
struct alignas(64) Group {
  Slot slots[kSlotsPerGroup];
};
static_assert(sizeof(Group) == 64);

inline constexpr std::uint64_t kEmptyKey = 0;
inline constexpr std::uint64_t kDeadKey = ~std::uint64_t{0};
inline constexpr std::uint64_t kOverflow = std::uint64_t{1} << 63;
inline constexpr std::uint32_t kTombstone = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kMaxRow = kTombstone - 1;
inline constexpr std::uint32_t kMaxVersion = (std::uint32_t{1} << 31) - 1;
// What is in a segment has this version; a store counts on from it.
inline constexpr std::uint32_t kFirstVersion = 1;
// No key lies further from its home than this many groups; who would is refused (StoreFull).
inline constexpr std::uint32_t kMaxProbeGroups = 64;

constexpr bool is_side_key(std::uint64_t key) noexcept { return key + 1 < 2; }
// Side slot of a side key: 0 for key 0, 1 for key 2^64-1.
constexpr std::size_t side_slot(std::uint64_t key) noexcept { return key == kEmptyKey ? 0 : 1; }

constexpr std::uint32_t row_of(std::uint64_t rv) noexcept {
  return static_cast<std::uint32_t>(rv) & kMaxRow;
}
constexpr bool is_tombstone(std::uint64_t rv) noexcept { return (rv & kTombstone) != 0; }
constexpr std::uint32_t version_of(std::uint64_t rv) noexcept {
  return static_cast<std::uint32_t>(rv >> 32) & kMaxVersion;
}
constexpr std::uint64_t make_rv(std::uint32_t row, std::uint32_t version) noexcept {
  return std::uint64_t{version} << 32 | row;
}

// A mix of 64 bits (two multiplications and a fold), keyed by the table's seed so that nobody can
// choose keys that collide.
constexpr std::uint64_t mix(std::uint64_t key, std::uint64_t seed) noexcept {
  const auto product = static_cast<unsigned __int128>(key ^ seed) * 0xD6E8FEB86659FD93ull;
  const auto folded =
      static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  return folded * 0x9FB21C651E98DF25ull;
}
// Scales a hash to 0..groups-1 without a division.
constexpr std::uint64_t group_of(std::uint64_t hash, std::uint64_t groups) noexcept {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * groups) >> 64);
}
constexpr std::uint64_t home_group(std::uint64_t key, std::uint64_t seed,
                                   std::uint64_t groups) noexcept {
  return group_of(mix(key, seed), groups);
}
// Groups of a fresh index for so many keys: a load of 0.6 of its slots; at least one.
constexpr std::uint64_t groups_for(std::uint64_t keys) noexcept { return keys * 5 / 12 + 1; }

}  // namespace anabranch::store
