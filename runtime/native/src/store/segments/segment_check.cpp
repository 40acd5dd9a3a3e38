#include "store/segments/segment_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "anabranch/crc32c.h"
#include "anabranch/store/errors.h"
#include "anabranch/store/slots.h"

namespace anabranch::store {
namespace {

using namespace segment_layout;

constexpr std::size_t kNamedSections = 3;

[[noreturn]] void damaged(const std::string& what) {
  throw Damaged("segment " + what + ": copy or build the file again");
}

// The sections that bytes `begin` to `end` belong to, the first few of them.
std::string sections_at(const SegmentDirectory& directory, std::uint64_t begin, std::uint64_t end) {
  std::vector<Section> all;
  for (const SegmentTable& table : directory.tables) {
    for (Section& section : sections_of(table)) all.push_back(std::move(section));
  }
  all.push_back({"directory", directory.header.off_directory, directory.header.off_checksums});
  std::string names;
  std::size_t count = 0;
  for (const Section& section : all) {
    if (section.begin >= end || section.end <= begin) continue;
    if (++count > kNamedSections) continue;
    names += (count > 1 ? ", " : "") + section.name;
  }
  if (count == 0) return "padding";
  if (count > kNamedSections) names += " and " + std::to_string(count - kNamedSections) + " more";
  return names;
}

const Group* index_of(const SegmentTable& table, const std::byte* file) noexcept {
  return reinterpret_cast<const Group*>(file + table.off_index);
}

std::uint64_t distance(std::uint64_t home, std::uint64_t at, std::uint64_t groups) noexcept {
  return at >= home ? at - home : at + groups - home;
}

// What is wrong with a slot that holds a key and lies in group `at`, or null.
const char* fault_of(const SegmentTable& table, const Group* index, const Slot& slot,
                     std::uint64_t at) noexcept {
  if (version_of(slot.rv) != kFirstVersion || is_tombstone(slot.rv)) return "a version of its own";
  if (row_of(slot.rv) >= table.rows) return "a row that is not there";
  const std::uint64_t home = home_group(slot.key, table.seed, table.groups);
  if (distance(home, at, table.groups) >= kMaxProbeGroups) return "a key out of reach";
  for (std::uint64_t group = home; group != at; group = group + 1 == table.groups ? 0 : group + 1) {
    if ((index[group].slots[0].rv & kOverflow) == 0) return "a key behind a group with room";
  }
  return nullptr;
}

}  // namespace

void check_blocks(const SegmentDirectory& directory, std::span<const std::byte> file,
                  const std::function<void(std::uint64_t)>& progress) {
  const Header& header = directory.header;
  const auto checksums =
      file.subspan(header.off_checksums, file.size() - sizeof(Footer) - header.off_checksums);
  if (crc32c(checksums) != header.checksums_crc) damaged("checksums: their own does not match");
  const auto body = file.first(header.off_checksums);
  for (std::uint64_t begin = 0, number = 0; begin < body.size(); begin += kBlockBytes, ++number) {
    const std::uint64_t end = std::min<std::uint64_t>(body.size(), begin + kBlockBytes);
    const std::uint64_t first = std::max<std::uint64_t>(begin, sizeof(Header));
    std::uint32_t expected;
    std::memcpy(&expected, checksums.data() + number * sizeof expected, sizeof expected);
    if (crc32c(body.subspan(first, end - first)) != expected) {
      damaged(sections_at(directory, first, end) + ": the checksum of bytes " +
              std::to_string(first) + " to " + std::to_string(end) + " does not match");
    }
    if (progress) progress(end);
  }
}

void check_index(const SegmentTable& table, const std::byte* file) {
  if (table.keys == KeyKind::kDenseId) return;
  const Group* index = index_of(table, file);
  const auto fault = [&](std::uint64_t group, const char* what) {
    damaged("table \"" + table.name + "\": index group " + std::to_string(group) + " has " + what);
  };
  std::uint64_t keys = 0;
  for (std::uint64_t at = 0; at < table.groups; ++at) {
    for (std::size_t i = 0; i < kSlotsPerGroup; ++i) {
      const Slot slot = index[at].slots[i];
      if (slot.key == kDeadKey) fault(at, "a dead slot");
      if (i > 0 && (slot.rv & kOverflow) != 0) fault(at, "a mark that is the first slot's");
      if (slot.key == kEmptyKey) {
        if (slot.rv != 0) fault(at, "an empty slot with a row");
        continue;
      }
      if (const char* what = fault_of(table, index, slot, at)) fault(at, what);
      ++keys;
    }
  }
  for (std::size_t i = 0; i < kSlotsPerGroup; ++i) {
    const Slot slot = index[table.groups].slots[i];
    if (slot.rv == 0) {
      if (slot.key != 0) fault(table.groups, "a key without a row");
      continue;
    }
    const bool known = i < 2 && slot.key == (i == 0 ? kEmptyKey : kDeadKey);
    if (!known || slot.rv != make_rv(row_of(slot.rv), kFirstVersion) ||
        row_of(slot.rv) >= table.rows) {
      fault(table.groups, "a side slot of no use");
    }
    ++keys;
  }
  if (keys != table.rows) {
    damaged("table \"" + table.name + "\": its index has " + std::to_string(keys) + " keys for " +
            std::to_string(table.rows) + " rows");
  }
}

void check_keys(const SegmentTable& table, const std::byte* file) {
  if (table.keys == KeyKind::kDenseId) return;
  constexpr std::uint32_t kBlock = 32;  // home lines on their way at the same time
  const Group* index = index_of(table, file);
  const auto* keys = reinterpret_cast<const std::uint64_t*>(file + table.off_keys);
  const auto leads_to = [&](std::uint64_t key, std::uint64_t home, std::uint32_t row) {
    if (is_side_key(key)) {
      const std::uint64_t rv = index[table.groups].slots[side_slot(key)].rv;
      return rv != 0 && row_of(rv) == row;
    }
    std::uint64_t at = home;
    for (std::uint32_t probe = 0; probe < kMaxProbeGroups; ++probe) {
      for (const Slot& slot : index[at].slots) {
        if (slot.key == key) return row_of(slot.rv) == row;
      }
      if ((index[at].slots[0].rv & kOverflow) == 0) return false;
      at = at + 1 == table.groups ? 0 : at + 1;
    }
    return false;
  };
  for (std::uint32_t begin = 0; begin < table.rows; begin += kBlock) {
    const std::uint32_t count = std::min(kBlock, table.rows - begin);
    std::uint64_t homes[kBlock];
    for (std::uint32_t i = 0; i < count; ++i) {
      homes[i] = home_group(keys[begin + i], table.seed, table.groups);
      __builtin_prefetch(index + homes[i]);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (leads_to(keys[begin + i], homes[i], begin + i)) continue;
      damaged("table \"" + table.name + "\": keys and index disagree about row " +
              std::to_string(begin + i));
    }
  }
}

Segment::Probes count_probes(const SegmentTable& table, const std::byte* file) noexcept {
  if (table.keys == KeyKind::kDenseId) return {1, 1};
  const Group* index = index_of(table, file);
  std::uint64_t keys = 0;
  std::uint64_t total = 0;
  std::uint64_t most = 0;
  for (std::uint64_t at = 0; at < table.groups; ++at) {
    for (const Slot& slot : index[at].slots) {
      if (is_side_key(slot.key)) continue;
      const std::uint64_t home = home_group(slot.key, table.seed, table.groups);
      const std::uint64_t looked_at = distance(home, at, table.groups) + 1;
      ++keys;
      total += looked_at;
      most = std::max(most, looked_at);
    }
  }
  if (keys == 0) return {0, 0};
  return {static_cast<double>(total) / static_cast<double>(keys),
          static_cast<std::uint32_t>(std::min<std::uint64_t>(most, ~std::uint32_t{0}))};
}

}  // namespace anabranch::store
