// What shared memory sees of a change: its second half, and reclaim.
//
// The order of the stores is the protocol of docs/formats.md, "Generations": whatever a reader
// finds, everything behind it is there already.
#include <algorithm>

#include "store/writer/atomic_words.h"
#include "store/writer/row_bytes.h"
#include "store/writer/table_books.h"

namespace anabranch::store {
namespace {

constexpr std::size_t kAhead = 16;  // entries whose lines are on their way
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

}  // namespace

void TableBooks::apply(std::uint32_t version) noexcept {
  finish_rows();
  const auto entries = pending_.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i + kAhead < entries.size()) __builtin_prefetch(&rv_word(entries[i + kAhead].place), 1);
    const Entry& entry = entries[i];
    if (entry.action == Action::kNothing) {
      free_rows_.push_back(entry.row);
      continue;
    }
    std::uint64_t& word = rv_word(entry.place);
    const std::uint64_t before = load(word, kRelaxed);
    const std::uint64_t old_rv = before & ~kOverflow;
    const std::uint64_t rv = make_rv(view_.base_rows + entry.row, version) |
                             (entry.action == Action::kErase ? kTombstone : 0);
    store(word, rv | (before & kOverflow), kRelease);
    if (view_.is_dense()) {
      set_bits(changed_[entry.place / 64], std::uint64_t{1} << entry.place % 64, kRelease);
    } else if (entry.fresh) {
      mark_overflow(entry.key, entry.place);
      Group& group = index_[entry.place / kSlotsPerGroup];
      store(group.slots[entry.place % kSlotsPerGroup].key, entry.key, kRelease);
      ++used_slots_;
    }
    if (in_arena(old_rv)) ++retired_rows_;
    log_.push({old_rv, version, entry.place});
  }
  live_ += pending_.counts.inserted - pending_.counts.deleted;
  pending_.clear();
}

// Every group between the home of `key` and its slot tells that keys lie behind it.
void TableBooks::mark_overflow(std::uint64_t key, std::uint32_t slot) noexcept {
  const std::uint64_t group = slot / kSlotsPerGroup;
  for (std::uint64_t number = home_group(key, view_.seed, view_.groups); number != group;) {
    std::uint64_t& word = index_[number].slots[0].rv;
    if ((load(word, kRelaxed) & kOverflow) == 0) set_bits(word, kOverflow, kRelease);
    if (++number == view_.groups) number = 0;
  }
}

std::uint64_t TableBooks::reclaim(std::uint32_t floor, std::uint32_t next_version) {
  // Readers that may have seen the key that died here are gone: the slot is like new.
  while (dead_.size() != 0 && dead_.front().tag <= floor) {
    const std::uint32_t slot = dead_.front().slot;
    store(index_[slot / kSlotsPerGroup].slots[slot % kSlotsPerGroup].key, kEmptyKey, kRelease);
    --used_slots_;
    dead_.pop();
  }
  std::uint64_t freed = 0;
  const auto free_row = [&](std::uint64_t rv) {
    free_rows_.push_back(row_of(rv) - view_.base_rows);
    ++freed;
  };
  while (log_.size() != 0 && log_.front().version <= floor) {
    if (log_.size() > kAhead) __builtin_prefetch(&rv_word(log_[kAhead].place), 1);
    const Record record = log_.front();
    // A tombstone that is still the newest ends here. One that was superseded by a new row is the
    // old rv of that record, and freed with it.
    const std::uint64_t now = rv_at(record.place);
    const bool dies = is_tombstone(now) && version_of(now) == record.version;
    if (dies) dead_.reserve(1);  // the only step that may fail, before anything is changed
    if (in_arena(record.old_rv)) {
      free_row(record.old_rv);
      --retired_rows_;
    }
    if (dies) {
      kill(record.place, next_version);
      free_row(now);
    }
    log_.pop();
  }
  return freed;
}

// rv before key: who found the key finds nothing behind it.
void TableBooks::kill(std::uint32_t place, std::uint32_t tag) noexcept {
  std::uint64_t& word = rv_word(place);
  store(word, load(word, kRelaxed) & kOverflow, kRelease);
  if (is_side_place(place)) return;
  store(index_[place / kSlotsPerGroup].slots[place % kSlotsPerGroup].key, kDeadKey, kRelease);
  dead_.push({tag, place});
}

}  // namespace anabranch::store
