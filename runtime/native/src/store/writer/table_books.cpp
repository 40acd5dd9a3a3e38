#include "store/writer/table_books.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "anabranch/store/errors.h"
#include "store/writer/atomic_words.h"
#include "store/writer/index_filler.h"
#include "store/writer/mapped_region.h"
#include "store/writer/row_bytes.h"

namespace anabranch::store {
namespace {

constexpr std::size_t kBlock = 16;          // keys that are prefetched together
constexpr std::size_t kEncodedRows = 1024;  // rows that are encoded together
constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

TableBooks::TableBooks(const SegmentTable& table, const Capacity& capacity,
                       const TableRecord& record, const TableView& view, std::byte* memory)
    : name_("table '" + table.name + "'"),
      view_(view),
      stride_(view.format.stride()),
      index_(reinterpret_cast<Group*>(memory + record.off_index)),
      changed_(reinterpret_cast<std::uint64_t*>(memory + record.off_changed)),
      rvs_(reinterpret_cast<std::uint64_t*>(memory + record.off_rvs)),
      previous_(reinterpret_cast<std::uint64_t*>(memory + record.off_undo)),
      arena_(memory + record.off_arena),
      key_limit_(capacity.keys),
      slots_(view.groups * kSlotsPerGroup),
      slot_limit_(slots_ / 4 * 3),
      side_places_(view.is_dense() ? ~std::uint64_t{0} : slots_),
      live_(view.is_dense() ? view.base_rows : 0),
      huge_from_(arena_ + std::max(record.arena_bytes(), kHugePage)) {
  if (record.arena_bytes() >= 2 * kHugePage) huge_from_ = arena_ + kHugePage;
}

std::uint64_t TableBooks::fill(const Segment& segment, const SegmentTable& table) {
  if (view_.is_dense()) return view_.seed;
  view_.seed = fill_index(segment, table, index_, view_.groups);
  live_ = table.rows;
  used_slots_ = live_;
  for (std::uint32_t place = 0; place < 2; ++place) {
    if (rv_at(static_cast<std::uint32_t>(side_places_) + place) != 0) --used_slots_;
  }
  return view_.seed;
}

void TableBooks::put_base_rows(std::span<const std::uint64_t> keys,
                               std::span<const std::uint32_t> rows) {
  for (const std::uint64_t key : keys) {
    __builtin_prefetch(&index_[home_group(key, view_.seed, view_.groups)], 1);
  }
  IndexFiller filler(index_, view_.groups, view_.seed);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (filler.put(keys[i], make_rv(rows[i], kFirstVersion)) != IndexFiller::Put::kDone) {
      throw StoreFull(name_ + ": key " + std::to_string(keys[i]) + " lies more than " +
                      std::to_string(kMaxProbeGroups) +
                      " groups from its home: grow with more keys");
    }
    ++live_;
    if (!is_side_key(keys[i])) ++used_slots_;
  }
}

// ---- places

std::uint64_t& TableBooks::rv_word(std::uint32_t place) const noexcept {
  if (view_.is_dense()) return rvs_[place];
  return index_[place / kSlotsPerGroup].slots[place % kSlotsPerGroup].rv;
}

std::uint64_t TableBooks::rv_at(std::uint32_t place) const noexcept {
  return load(rv_word(place), kRelaxed) & ~kOverflow;
}

bool TableBooks::is_live(std::uint64_t rv) const noexcept {
  return view_.is_dense() || (rv != 0 && !is_tombstone(rv));
}

void TableBooks::prefetch(std::uint64_t key, std::uint64_t& home) const noexcept {
  if (view_.is_dense()) {
    if (key < view_.base_rows) __builtin_prefetch(&rvs_[key], 1);
    return;
  }
  home = home_group(key, view_.seed, view_.groups);
  __builtin_prefetch(&index_[home], 1);
}

// The same for what is pending at the key's place, where that is in its home group: nearly always.
void TableBooks::prefetch_pending(std::uint64_t key, std::uint64_t home) const noexcept {
  if (view_.is_dense()) return pending_.prefetch(static_cast<std::uint32_t>(key));
  for (std::uint32_t s = 0; s < kSlotsPerGroup; ++s) {
    if (load(index_[home].slots[s].key, kRelaxed) != key) continue;
    pending_.prefetch(static_cast<std::uint32_t>(home * kSlotsPerGroup) + s);
  }
}

// Where `key` lies or is pending, else the first slot on its way that is free. Keys lie behind a
// group only where it overflowed; pending ones also where it is full of pending ones.
TableBooks::Place TableBooks::locate(std::uint64_t key, std::uint64_t home) const noexcept {
  if (view_.is_dense()) return {static_cast<std::uint32_t>(key), false};
  if (is_side_key(key)) return {static_cast<std::uint32_t>(slots_ + side_slot(key)), false};
  std::uint32_t free = Pending::kNone;
  std::uint64_t number = home;
  const std::uint64_t most = std::min<std::uint64_t>(view_.groups, kMaxProbeGroups);
  for (std::uint64_t looked_at = 0; looked_at < most; ++looked_at) {
    const Group& group = index_[number];
    const auto first = static_cast<std::uint32_t>(number * kSlotsPerGroup);
    for (std::uint32_t s = 0; s < kSlotsPerGroup; ++s) {
      const std::uint64_t found = load(group.slots[s].key, kRelaxed);
      if (found == key) return {first + s, false};
      if (found != kEmptyKey) continue;
      const std::uint32_t entry = pending_.find(first + s);
      if (entry == Pending::kNone) {
        if (free == Pending::kNone) free = first + s;
      } else if (pending_[entry].key == key) {
        return {first + s, true};
      }
    }
    const bool overflowed = (load(group.slots[0].rv, kRelaxed) & kOverflow) != 0;
    if (!overflowed && free != Pending::kNone) break;
    if (++number == view_.groups) number = 0;
  }
  return {free, true};
}

// ---- first half of a change

// Everything that `apply` and `drop` write beside shared memory gets its room here.
void TableBooks::reserve(std::size_t more) {
  pending_.reserve(more);
  log_.reserve(pending_.entries().size() + more);
}

std::uint32_t TableBooks::take_row() {
  if (!free_rows_.empty()) {
    const std::uint32_t row = free_rows_.back();
    free_rows_.pop_back();
    return row;
  }
  if (rows_begun_ == view_.arena_rows) {
    throw StoreFull(name_ + ": all " + std::to_string(view_.arena_rows) +
                    " arena rows are in use, " + std::to_string(log_.size()) +
                    " changes wait for readers: reclaim, or grow with more arena rows");
  }
  // Room to give it back without failing.
  if (free_rows_.capacity() <= rows_begun_) {
    free_rows_.reserve(std::max<std::size_t>(64, 2 * free_rows_.capacity()));
  }
  if (arena_row(rows_begun_) >= huge_from_) widen_huge_pages();
  return rows_begun_++;
}

// Rows are about to begin another huge page: makes one of it, which saves the faults of its small
// pages now and address translation to everybody later. Not of the first one, which may be all that
// the table ever needs, until it is full.
void TableBooks::widen_huge_pages() noexcept {
  std::byte* const end = arena_ + std::size_t{view_.arena_rows} * stride_;
  std::byte* const begin = huge_from_ == arena_ + kHugePage ? arena_ : huge_from_;
  huge_from_ = std::min(huge_from_ + kHugePage, end);
  // Where memory is too fragmented, it will be so for the next one too.
  if (!make_huge({begin, huge_from_})) huge_from_ = end;
}

// Throws StoreFull where one more key would be too many.
void TableBooks::check_key_room() const {
  if (live_ + pending_.counts.inserted - pending_.counts.deleted < key_limit_) return;
  throw StoreFull(name_ + ": it has room for " + std::to_string(key_limit_) +
                  " keys: grow with more keys");
}

Entry& TableBooks::add_entry(std::uint64_t key, Place place, Action action) {
  const std::uint64_t old_rv = rv_at(place.number);
  const bool was_live = !place.fresh && is_live(old_rv);
  if (action == Action::kWrite && !was_live) check_key_room();
  if (place.fresh && used_slots_ + pending_.fresh >= slot_limit_) {
    throw StoreFull(name_ + ": " + std::to_string(used_slots_ + pending_.fresh) + " of " +
                    std::to_string(slots_) + " slots are in use, of which at most " +
                    std::to_string(slot_limit_) +
                    " may be: reclaim deleted keys, or grow with more keys");
  }
  const std::uint32_t row = take_row();
  // Nobody follows the link before `apply` leads there. It is stored here, and the word of the
  // bitmap as it is, so that memory for their pages is taken while the change may still be dropped.
  store(previous_[row], old_rv, kRelaxed);
  if (view_.is_dense()) {
    std::uint64_t& word = changed_[place.number / 64];
    store(word, load(word, kRelaxed), kRelaxed);
  }
  if (place.fresh) ++pending_.fresh;
  Entry& entry = pending_.add({key, place.number, row, action, place.fresh, was_live});
  pending_.tally(entry, 1);
  return entry;
}

// The entry of a key that is going to have a row.
Entry& TableBooks::claim(std::uint64_t key, std::uint64_t home) {
  if (view_.is_dense() && key >= view_.base_rows) {
    throw Refused(name_ + ": id " + std::to_string(key) + " is out of range: it has " +
                  std::to_string(view_.base_rows) + " rows");
  }
  const Place place = locate(key, home);
  if (place.number == Pending::kNone) {
    throw StoreFull(name_ + ": no free slot within " + std::to_string(kMaxProbeGroups) +
                    " groups of the home of key " + std::to_string(key) + ": grow with more keys");
  }
  const std::uint32_t number = pending_.find(place.number);
  if (number == Pending::kNone) return add_entry(key, place, Action::kWrite);
  Entry& entry = pending_[number];
  if (entry.action != Action::kWrite) check_key_room();  // it was to be gone, and comes back
  ++pending_.counts.duplicates;
  pending_.tally(entry, -1);
  entry.action = Action::kWrite;
  pending_.tally(entry, 1);
  return entry;
}

void TableBooks::upsert(std::span<const std::uint64_t> keys, std::span<const std::byte> rows) {
  reserve(keys.size());
  // Homes of a block are known, and its lines on their way, while the block before is placed.
  std::array<std::uint64_t, 2 * kBlock> homes{};
  std::array<std::byte*, kBlock> targets;
  const auto look_ahead = [&](std::size_t begin) {
    const std::size_t end = std::min(begin + kBlock, keys.size());
    for (std::size_t i = begin; i < end; ++i) prefetch(keys[i], homes[i % homes.size()]);
  };
  look_ahead(0);
  for (std::size_t begin = 0; begin < keys.size(); begin += kBlock) {
    look_ahead(begin + kBlock);
    const std::size_t count = std::min(kBlock, keys.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      prefetch_pending(keys[begin + i], homes[(begin + i) % homes.size()]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      targets[i] = arena_row(claim(keys[begin + i], homes[(begin + i) % homes.size()]).row);
      prefetch_row(targets[i], stride_);
    }
    // In the order of the keys: of two rows for one key the later stays.
    for (std::size_t i = 0; i < count; ++i) {
      write_row(targets[i], rows.data() + (begin + i) * stride_, stride_);
    }
  }
}

void TableBooks::upsert(std::span<const std::uint64_t> keys, std::span<const float> values) {
  const RowFormat format = view_.format;
  if (format.type == RowType::kF32 && format.stride() == format.bytes()) {
    return upsert(keys, std::as_bytes(values));
  }
  const auto encode = [&](std::size_t begin, std::size_t count, std::span<std::byte> rows) {
    encode_rows(format, values.subspan(begin * format.dim, count * format.dim), rows);
  };
  std::vector<std::byte> encoded(std::min(keys.size(), kEncodedRows) * stride_);
  for (std::size_t begin = 0; begin < keys.size(); begin += kEncodedRows) {
    const std::size_t count = std::min(kEncodedRows, keys.size() - begin);
    const auto rows = std::span(encoded).first(count * stride_);
    try {
      encode(begin, count, rows);
    } catch (const Refused&) {
      // Again one by one, to name the row as the caller counts.
      for (std::size_t i = begin; i < begin + count; ++i) {
        try {
          encode(i, 1, rows.first(stride_));
        } catch (const Refused&) {
          throw Refused(name_ + ": row " + std::to_string(i) + ", of key " +
                        std::to_string(keys[i]) +
                        ", cannot be held as int8: its numbers have to be finite, and their range "
                        "one that f16 holds");
        }
      }
    }
    upsert(keys.subspan(begin, count), rows);
  }
}

void TableBooks::erase(std::span<const std::uint64_t> keys) {
  if (view_.is_dense()) {
    throw Refused(name_ + ": its keys are row numbers, which cannot be deleted");
  }
  reserve(keys.size());
  std::array<std::uint64_t, kBlock> homes{};
  for (std::size_t begin = 0; begin < keys.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, keys.size() - begin);
    for (std::size_t i = 0; i < count; ++i) prefetch(keys[begin + i], homes[i]);
    for (std::size_t i = 0; i < count; ++i) erase_one(keys[begin + i], homes[i]);
  }
}

void TableBooks::erase_one(std::uint64_t key, std::uint64_t home) {
  const Place place = locate(key, home);
  const std::uint32_t number =
      place.number == Pending::kNone ? Pending::kNone : pending_.find(place.number);
  if (number != Pending::kNone) {
    Entry& entry = pending_[number];
    ++pending_.counts.duplicates;
    pending_.tally(entry, -1);
    entry.action = entry.was_live ? Action::kErase : Action::kNothing;
    pending_.tally(entry, 1);
  } else if (!place.fresh && is_live(rv_at(place.number))) {
    add_entry(key, place, Action::kErase);
  } else {
    ++pending_.counts.absent;
  }
}

void TableBooks::restore(std::uint32_t version) {
  reserve(log_.size());
  // Deletes first: they make room for the keys that come back.
  for (const bool writes : {false, true}) {
    for (std::size_t i = 0; i < log_.size(); ++i) {
      const Record record = log_[i];
      // Of all records of a place, one alone superseded what was visible at `version`.
      if (record.version <= version || version_of(record.old_rv) > version) continue;
      if (is_live(record.old_rv) != writes) continue;
      const Newest now = newest_at(record.place);
      if (!writes && now.rv == 0) continue;
      const Action action = writes ? Action::kWrite : Action::kErase;
      const Entry& entry = add_entry(now.key, {record.place, false}, action);
      if (!writes) continue;
      const auto base_row = static_cast<std::uint32_t>(now.key);  // of a dense id
      const std::uint32_t row = record.old_rv != 0 ? row_of(record.old_rv) : base_row;
      std::memcpy(arena_row(entry.row), view_.row(row), stride_);
    }
  }
}

void TableBooks::drop() noexcept {
  for (const Entry& entry : pending_.entries()) free_rows_.push_back(entry.row);
  pending_.clear();
}

}  // namespace anabranch::store
