// One key in one table: the scalar form of a lookup.
#include <algorithm>

#include "anabranch/store/table_view.h"
#include "store/writer/atomic_words.h"

namespace anabranch::store {
namespace {

// Follows undo links from `rv` to what `version` sees.
std::uint64_t visible(const TableView& table, std::uint64_t rv, std::uint32_t version) noexcept {
  for (std::uint64_t hops = 0; hops <= table.arena_rows; ++hops) {
    if (version_of(rv) <= version) {
      return is_tombstone(rv) || row_of(rv) >= table.rows_end() ? 0 : rv & ~kOverflow;
    }
    const std::uint32_t row = row_of(rv) - table.base_rows;  // wraps around for a base row
    if (row >= table.arena_rows) return 0;
    // Relaxed: the link was stored before the rv that led here, which was loaded with acquire.
    const std::uint64_t older = load(table.previous[row], std::memory_order_relaxed);
    if (version_of(older) >= version_of(rv)) return 0;
    rv = older;
  }
  return 0;
}

// The slot's rv as it is now, or 0 where the key lies in no group.
std::uint64_t probe(const TableView& table, std::uint64_t key) noexcept {
  if (is_side_key(key)) {
    return load(table.index[table.groups].slots[side_slot(key)].rv, std::memory_order_acquire);
  }
  std::uint64_t number = home_group(key, table.seed, table.groups);
  const std::uint64_t most = std::min<std::uint64_t>(table.groups, kMaxProbeGroups);
  for (std::uint64_t looked_at = 0; looked_at < most; ++looked_at) {
    const Group& group = table.index[number];
    for (const Slot& slot : group.slots) {
      if (load(slot.key, std::memory_order_acquire) == key) {
        return load(slot.rv, std::memory_order_acquire);
      }
    }
    if ((load(group.slots[0].rv, std::memory_order_relaxed) & kOverflow) == 0) return 0;
    if (++number == table.groups) number = 0;
  }
  return 0;
}

std::uint64_t find_dense(const TableView& table, std::uint64_t key,
                         std::uint32_t version) noexcept {
  if (key >= table.base_rows) return 0;
  const std::uint64_t base = make_rv(static_cast<std::uint32_t>(key), kFirstVersion);
  const std::uint64_t changed = load(table.changed[key / 64], std::memory_order_acquire);
  if ((changed >> key % 64 & 1) == 0) return base;
  const std::uint64_t rv = visible(table, load(table.rvs[key], std::memory_order_acquire), version);
  return rv != 0 ? rv : base;
}

}  // namespace

std::uint64_t find_rv(const TableView& table, std::uint64_t key, std::uint32_t version) noexcept {
  if (table.is_dense()) return find_dense(table, key, version);
  return visible(table, probe(table, key), version);
}

const std::byte* find_row(const TableView& table, std::uint64_t key,
                          std::uint32_t version) noexcept {
  const std::uint64_t rv = find_rv(table, key, version);
  return rv == 0 ? nullptr : table.row(row_of(rv));
}

}  // namespace anabranch::store
