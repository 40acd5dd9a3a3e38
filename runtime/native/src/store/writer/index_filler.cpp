#include "store/writer/index_filler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "anabranch/store/errors.h"

namespace anabranch::store {
namespace {

constexpr std::size_t kBlock = 16;  // prefetched at once
constexpr int kMaxSeeds = 8;

[[noreturn]] void damaged(const SegmentTable& table, const std::string& what) {
  throw Damaged("segment, index of table '" + table.name + "': " + what +
                ": fetch or build the segment again");
}

// Counts the keys of a copied index, and refuses slots that a segment cannot have.
std::uint64_t checked_keys(const SegmentTable& table, const Group* index, std::uint64_t groups) {
  std::uint64_t keys = 0;
  for (std::uint64_t g = 0; g <= groups; ++g) {
    for (std::size_t s = 0; s < kSlotsPerGroup; ++s) {
      const Slot& slot = index[g].slots[s];
      const bool may_overflow = s == 0 && g < groups;
      const std::uint64_t rv = may_overflow ? slot.rv & ~kOverflow : slot.rv;
      const bool side = g == groups;
      if (rv == 0 && (side || slot.key == kEmptyKey)) continue;
      if (rv >> 32 != kFirstVersion || is_tombstone(rv) || row_of(rv) >= table.rows ||
          (side ? s > 1 : is_side_key(slot.key))) {
        damaged(table, "slot " + std::to_string(g * kSlotsPerGroup + s) + " is impossible");
      }
      ++keys;
    }
  }
  return keys;
}

}  // namespace

IndexFiller::Put IndexFiller::put(std::uint64_t key, std::uint64_t rv,
                                  std::uint64_t home) noexcept {
  const std::uint64_t most = std::min<std::uint64_t>(groups_, kMaxProbeGroups);
  std::uint64_t number = home;
  for (std::uint64_t looked_at = 0; looked_at < most; ++looked_at) {
    Group& group = index_[number];
    for (Slot& slot : group.slots) {
      if (slot.key == key) return Put::kPresent;
      if (slot.key != kEmptyKey) continue;
      slot = {key, rv | (slot.rv & kOverflow)};
      return Put::kDone;
    }
    group.slots[0].rv |= kOverflow;
    if (++number == groups_) number = 0;
  }
  return Put::kTooFar;
}

IndexFiller::Put IndexFiller::put(std::uint64_t key, std::uint64_t rv) noexcept {
  if (!is_side_key(key)) return put(key, rv, home_group(key, seed_, groups_));
  Slot& slot = index_[groups_].slots[side_slot(key)];
  if (slot.rv != 0) return Put::kPresent;
  slot = {key, rv};
  return Put::kDone;
}

IndexFiller::Put IndexFiller::put_all(std::span<const std::uint64_t> keys,
                                      std::uint32_t first_row) noexcept {
  std::array<std::uint64_t, kBlock> homes;
  for (std::size_t begin = 0; begin < keys.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, keys.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      homes[i] = home_group(keys[begin + i], seed_, groups_);
      __builtin_prefetch(&index_[homes[i]], 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t key = keys[begin + i];
      const std::uint64_t rv =
          make_rv(first_row + static_cast<std::uint32_t>(begin + i), kFirstVersion);
      const Put done = is_side_key(key) ? put(key, rv) : put(key, rv, homes[i]);
      if (done != Put::kDone) return done;
    }
  }
  return Put::kDone;
}

std::uint64_t fill_index(const Segment& segment, const SegmentTable& table, Group* index,
                         std::uint64_t groups) {
  const std::size_t bytes = (groups + 1) * sizeof(Group);
  if (groups == table.groups) {
    std::memcpy(static_cast<void*>(index), segment.data() + table.off_index, bytes);
    if (const std::uint64_t keys = checked_keys(table, index, groups); keys != table.rows) {
      damaged(table, "it has " + std::to_string(keys) + " keys for " + std::to_string(table.rows) +
                         " rows");
    }
    return table.seed;
  }
  const std::span keys(reinterpret_cast<const std::uint64_t*>(segment.data() + table.off_keys),
                       table.rows);
  std::uint64_t seed = table.seed;
  for (int tried = 0; tried < kMaxSeeds; ++tried) {
    switch (IndexFiller(index, groups, seed).put_all(keys, 0)) {
      case IndexFiller::Put::kDone:
        return seed;
      case IndexFiller::Put::kPresent:
        damaged(table, "a key is there twice");
      case IndexFiller::Put::kTooFar:
        std::memset(static_cast<void*>(index), 0, bytes);
        seed = random_seed();
    }
  }
  throw StoreFull("table '" + table.name + "': its keys crowd in an index of " +
                  std::to_string(groups) + " groups: give it room for more keys");
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace anabranch::store
