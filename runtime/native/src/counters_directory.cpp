#include "counters_directory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace anabranch::counters_layout {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

// A slot is a sequence, in 40 bits that no number of rewrites exhausts, and the place of a record.
constexpr int kPlaceBits = 24;
static_assert(CountersPage::kMaxBytes / kGranule <= std::size_t{1} << kPlaceBits);

Slot slot_of(std::uint64_t sequence, std::size_t offset) {
  return sequence << kPlaceBits | offset / kGranule;
}
std::uint64_t sequence_of(Slot slot) { return slot >> kPlaceBits; }
std::size_t offset_of(Slot slot) { return (slot & ((Slot{1} << kPlaceBits) - 1)) * kGranule; }

std::size_t record_bytes_of(const std::uint64_t* words) {
  return low_half(load(words + kSizeWord, kRelaxed));
}
std::size_t value_bytes_of(const std::uint64_t* words) {
  return 8 * std::size_t{high_half(load(words + kSizeWord, kRelaxed))};
}

}  // namespace

CountersDirectory::CountersDirectory(std::span<std::byte> page)
    : page_(page), record_starts_(page.size() / kGranule / 64) {
  store(header(kFormatWord), pack(kFormat, kHeaderBytes), kRelaxed);
  store(header(kPageBytesWord), page_.size(), kRelaxed);
  store(header(kValuesBeginWord), page_.size(), kRelaxed);
  store(header(kDirectoryEndWord), kHeaderBytes, kRelaxed);
  store(header(kMagicWord), kMagic, kRelease);
}

Slot CountersDirectory::add(SeriesKind kind, const RecordText& text) {
  const std::string identity(text.identity());
  const std::string name(RecordText::name_of(identity));
  const std::scoped_lock locked(lock_);
  if (const auto family = families_.find(name);
      family != families_.end() && family->second.kind != kind) {
    throw std::invalid_argument('"' + name + "\" is in use with another kind");
  }
  if (const auto found = live_.find(identity); found != live_.end()) {
    if (found->second.bounds != text.bound_bytes()) {
      throw std::invalid_argument('"' + name + "\" is in use with other bounds");
    }
    return found->second.slot;
  }
  const std::size_t bounds = text.bound_bytes().size() / sizeof(double);
  const std::size_t offset = place(round_up(kRecordHeaderBytes + text.bytes().size(), kGranule),
                                   round_up(8 * value_words(kind, bounds), kGranule));
  rewrite(offset, static_cast<std::uint32_t>(kind), text.bytes());
  const Slot slot = slot_of(load(words_at(offset), kRelaxed), offset);
  live_.emplace(identity, Live{slot, std::string(text.bound_bytes())});
  identities_.emplace(slot, identity);
  families_.try_emplace(name, Family{kind, 0}).first->second.series += 1;
  return slot;
}

void CountersDirectory::retire(Slot slot) {
  const std::scoped_lock locked(lock_);
  Record record;
  if (!find(slot, record)) return;
  const auto identity = identities_.find(slot);
  const auto family = families_.find(std::string(RecordText::name_of(identity->second)));
  if (--family->second.series == 0) families_.erase(family);
  live_.erase(identity->second);
  identities_.erase(identity);
  rewrite(offset_of(slot), 0, {});
  vacant_.push_back(offset_of(slot));
}

bool CountersDirectory::find(Slot slot, Record& record) const {
  const std::size_t offset = offset_of(slot);
  const std::uint64_t sequence = sequence_of(slot);
  const std::uint64_t* words = is_record(offset) ? words_at(offset) : nullptr;
  const std::uint64_t present = words == nullptr ? 0 : load(words, std::memory_order_acquire);
  if (sequence == 0 || sequence % 2 != 0 || sequence > present) {
    throw std::invalid_argument("slot " + std::to_string(slot) + " is not of this counters page");
  }
  const std::uint32_t kind = low_half(load(words + kKindWord, kRelaxed));
  record = {words, sequence, static_cast<SeriesKind>(kind),
            words_at(load(words + kValuesWord, kRelaxed))};
  return sequence == present && kind != 0;
}

// Does a record start here? Every update asks, so the answer takes no lock.
bool CountersDirectory::is_record(std::size_t offset) const noexcept {
  const std::size_t granule = offset / kGranule;
  return granule / 64 < record_starts_.size() &&
         (record_starts_[granule / 64].load(std::memory_order_acquire) >> granule % 64 & 1) != 0;
}

// The offset of a record of at least this size: the smallest vacant one, else a new one.
std::size_t CountersDirectory::place(std::size_t record_bytes, std::size_t value_bytes) {
  const auto fits = [&](std::size_t offset) {
    const std::uint64_t* words = words_at(offset);
    return record_bytes_of(words) >= record_bytes && value_bytes_of(words) >= value_bytes;
  };
  const auto size = [&](std::size_t offset) {
    return record_bytes_of(words_at(offset)) + value_bytes_of(words_at(offset));
  };
  auto best = vacant_.end();
  for (auto it = vacant_.begin(); it != vacant_.end(); ++it) {
    if (fits(*it) && (best == vacant_.end() || size(*it) < size(*best))) best = it;
  }
  if (best == vacant_.end()) return append(record_bytes, value_bytes);
  const std::size_t offset = *best;
  vacant_.erase(best);
  return offset;
}

// A new record is published empty, as if it had been retired.
std::size_t CountersDirectory::append(std::size_t record_bytes, std::size_t value_bytes) {
  const std::size_t offset = load(header(kDirectoryEndWord), kRelaxed);
  const std::size_t values_end = load(header(kValuesBeginWord), kRelaxed);
  const std::size_t left = values_end - offset;
  if (record_bytes + value_bytes > left) {
    throw PageFull("counters page of " + std::to_string(page_.size()) + " bytes is full: " +
                   std::to_string(live_.size()) + " series, " + std::to_string(left) +
                   " bytes left, " + std::to_string(record_bytes + value_bytes) + " needed");
  }
  const std::size_t values = values_end - value_bytes;
  std::uint64_t* words = words_at(offset);
  const auto value_count = static_cast<std::uint32_t>(value_bytes / 8);
  store(words + kSizeWord, pack(static_cast<std::uint32_t>(record_bytes), value_count), kRelease);
  store(words + kValuesWord, values, kRelease);
  rewrite(offset, 0, {});
  store(header(kValuesBeginWord), values, kRelease);
  store(header(kDirectoryEndWord), offset + record_bytes, kRelease);
  const std::size_t granule = offset / kGranule;
  record_starts_[granule / 64].fetch_or(std::uint64_t{1} << granule % 64, kRelease);
  return offset;
}

// Gives a record a new kind and text and sets its values to zero, under its sequence word.
void CountersDirectory::rewrite(std::size_t offset, std::uint32_t kind,
                                std::string_view text) noexcept {
  std::uint64_t* words = words_at(offset);
  const std::uint64_t sequence = load(words, kRelaxed);
  store(words, sequence + 1, kRelaxed);

  store(words + kKindWord, pack(kind, static_cast<std::uint32_t>(text.size())), kRelease);
  store(words + kChecksumWord, record_checksum(words, text), kRelease);
  for (std::size_t at = 0; at < text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    store(words + (kRecordHeaderBytes + at) / 8, word, kRelease);
  }
  std::uint64_t* values = words_at(load(words + kValuesWord, kRelaxed));
  for (std::size_t i = 0; i < value_bytes_of(words) / 8; ++i) store(values + i, 0, kRelease);

  store(words, sequence + 2, kRelease);
}

}  // namespace anabranch::counters_layout
