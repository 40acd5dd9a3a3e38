// What can be asked of a table's books.
#include <algorithm>

#include "store/writer/atomic_words.h"
#include "store/writer/table_books.h"

namespace anabranch::store {
namespace {

constexpr std::uint64_t kSampledSlots = 4096;
constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::uint64_t TableBooks::places() const noexcept {
  return view_.is_dense() ? view_.base_rows : slots_ + 2;
}

TableBooks::Newest TableBooks::newest_at(std::uint64_t place) const noexcept {
  const auto number = static_cast<std::uint32_t>(place);
  const std::uint64_t rv = rv_at(number);
  if (view_.is_dense()) return {place, rv};
  std::uint64_t key =
      load(index_[place / kSlotsPerGroup].slots[place % kSlotsPerGroup].key, kRelaxed);
  if (is_side_place(number)) key = number == side_places_ ? kEmptyKey : kDeadKey;
  return {key, is_live(rv) ? rv : 0};
}

std::uint64_t TableBooks::newest_of(std::uint64_t key) const noexcept {
  const std::uint64_t home = view_.is_dense() ? 0 : home_group(key, view_.seed, view_.groups);
  const Place place = locate(key, home);
  return place.fresh ? 0 : newest_at(place.number).rv;
}

bool TableBooks::is_untouched(std::uint64_t place) const noexcept {
  return view_.is_dense() && load(changed_[place / 64], kRelaxed) == 0;
}

TableStats TableBooks::stats() const {
  TableStats stats{};
  stats.live_keys = live_;
  stats.arena_rows = view_.arena_rows;
  stats.arena_used = rows_begun_ - free_rows_.size();
  stats.retired_rows = retired_rows_;
  stats.load = 1;
  stats.mean_probe = 1;
  if (view_.is_dense()) return stats;
  stats.slots = slots_;
  stats.used_slots = used_slots_;
  stats.load = static_cast<double>(live_) / static_cast<double>(slots_);
  std::uint64_t hits = 0;
  std::uint64_t looked_at = 0;
  for (std::uint64_t slot = 0; slot < slots_; slot += 1 + slots_ / kSampledSlots) {
    const Newest newest = newest_at(slot);
    if (newest.rv == 0) continue;
    const std::uint64_t home = home_group(newest.key, view_.seed, view_.groups);
    const std::uint64_t group = slot / kSlotsPerGroup;
    ++hits;
    looked_at += 1 + (group >= home ? group - home : group + view_.groups - home);
  }
  if (hits != 0) stats.mean_probe = static_cast<double>(looked_at) / static_cast<double>(hits);
  return stats;
}

std::uint64_t TableBooks::books_bytes() const noexcept {
  return free_rows_.capacity() * sizeof(std::uint32_t) + log_.capacity() * sizeof(Record) +
         dead_.capacity() * sizeof(Dead) + pending_.bytes();
}

}  // namespace anabranch::store
