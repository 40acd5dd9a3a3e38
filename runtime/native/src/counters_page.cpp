#include "anabranch/counters_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <system_error>
#include <unordered_map>

#include "anabranch/counters_reader.h"
#include "counters_layout.h"
#include "counters_text.h"

namespace anabranch {
namespace {

using namespace counters_layout;

constexpr int kSlotOffsetBits = 24;  // enough for kMaxBytes / kGranule records
static_assert(CountersPage::kMaxBytes / kGranule <= std::size_t{1} << kSlotOffsetBits);

std::size_t offset_of(Slot slot) { return (slot & ((Slot{1} << kSlotOffsetBits) - 1)) * kGranule; }
std::uint64_t sequence_of(Slot slot) { return slot >> kSlotOffsetBits; }

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void add_whole(std::uint64_t* word, std::uint64_t amount) noexcept {
  std::atomic_ref<std::uint64_t>(*word).fetch_add(amount, std::memory_order_relaxed);
}

void add_double(std::uint64_t* word, double amount) noexcept {
  const std::atomic_ref<std::uint64_t> target(*word);
  std::uint64_t seen = target.load(std::memory_order_relaxed);
  std::uint64_t sum;
  do {
    sum = std::bit_cast<std::uint64_t>(std::bit_cast<double>(seen) + amount);
  } while (!target.compare_exchange_weak(seen, sum, std::memory_order_relaxed));
}

// A live record, as the updates need it.
struct Record {
  const std::uint64_t* words;
  SeriesKind kind;
  std::uint64_t* values;

  // The text starts with the two counts; the bounds follow.
  std::span<const std::uint64_t> bounds() const noexcept {
    const std::uint64_t* text = words + kRecordHeaderBytes / 8;
    return {text + 1, low_half(load(text, std::memory_order_relaxed))};
  }
};

// `values` holds the sum and then the buckets; the bucket is the number of bounds below `value`.
void observe_value(std::uint64_t* values, std::span<const std::uint64_t> bounds,
                   double value) noexcept {
  std::size_t bucket = 0;
  for (const std::uint64_t& bound : bounds) {
    bucket += !(value <= std::bit_cast<double>(load(&bound, std::memory_order_relaxed)));
  }
  add_whole(values + 1 + bucket, 1);
  if (!std::isnan(value)) add_double(values, value);
}

}  // namespace

// Writers of records hold `registering`; updates of values hold nothing.
struct CountersPage::State {
  struct Live {
    Slot slot;
    SeriesKind kind;
    std::string bounds;  // their bytes
  };
  struct Family {
    SeriesKind kind;
    std::size_t series;
  };

  explicit State(std::size_t size);
  ~State();

  std::uint64_t* word_at(std::size_t offset) const noexcept {
    return reinterpret_cast<std::uint64_t*>(base + offset);
  }

  Slot slot_of(SeriesKind kind, const RecordText& text);
  std::size_t place(std::size_t record_bytes, std::size_t value_bytes);
  void rewrite(std::size_t offset, std::uint32_t kind, std::string_view text);
  void retire(Slot slot);
  bool find(Slot slot, Record& record) const;
  bool is_record(std::size_t offset) const noexcept;

  const std::size_t size_bytes;
  int fd = -1;
  std::byte* base = nullptr;
  std::vector<std::atomic<std::uint64_t>> record_starts;  // a bit a granule

  std::mutex registering;
  std::unordered_map<std::string, Live> live;  // by identity
  std::unordered_map<Slot, std::string> identities;
  std::unordered_map<std::string, Family> families;  // by name
  std::vector<std::size_t> vacant;                   // offsets of retired records
};

CountersPage::State::State(std::size_t size)
    : size_bytes(round_up(size, kPageStep)), record_starts(size_bytes / kGranule / 64) {
  fd = ::memfd_create("anabranch-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw_errno("cannot create a counters page");
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    mapped = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    errno = error;
    throw_errno("cannot size, seal and map a counters page");
  }
  // Kernels before 5.1 lack this seal; there a reader's mapping is read-only by its own choice.
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);

  base = static_cast<std::byte*>(mapped);
  const auto write = [&](HeaderWord word, std::uint64_t value) {
    store(word_at(8 * word), value, std::memory_order_release);
  };
  write(kFormatWord, pack(kFormat, kHeaderBytes));
  write(kPageBytesWord, size_bytes);
  write(kValuesBeginWord, size_bytes);
  write(kDirectoryEndWord, kHeaderBytes);
  write(kMagicWord, kMagic);
}

CountersPage::State::~State() {
  ::munmap(base, size_bytes);
  ::close(fd);
}

Slot CountersPage::State::slot_of(SeriesKind kind, const RecordText& text) {
  const std::string identity(text.identity());
  const std::string name(RecordText::name_of(identity));
  const std::scoped_lock lock(registering);
  if (const auto family = families.find(name);
      family != families.end() && family->second.kind != kind) {
    throw std::invalid_argument('"' + name + "\" is in use with another kind");
  }
  if (const auto found = live.find(identity); found != live.end()) {
    if (found->second.bounds != text.bound_bytes()) {
      throw std::invalid_argument('"' + name + "\" is in use with other bounds");
    }
    return found->second.slot;
  }
  const std::size_t bounds = text.bound_bytes().size() / sizeof(double);
  const std::size_t offset = place(round_up(kRecordHeaderBytes + text.bytes().size(), kGranule),
                                   round_up(8 * value_words(kind, bounds), kGranule));
  rewrite(offset, static_cast<std::uint32_t>(kind), text.bytes());
  const Slot slot =
      load(word_at(offset), std::memory_order_relaxed) << kSlotOffsetBits | offset / kGranule;
  live.emplace(identity, Live{slot, kind, std::string(text.bound_bytes())});
  identities.emplace(slot, identity);
  families.try_emplace(name, Family{kind, 0}).first->second.series += 1;
  return slot;
}

// The offset of a record of at least this size: the smallest vacant one, else a new one. A new one
// is published empty, as if it had been retired.
std::size_t CountersPage::State::place(std::size_t record_bytes, std::size_t value_bytes) {
  const auto record_size = [&](std::size_t offset) {
    return low_half(load(word_at(offset) + kSizeWord, std::memory_order_relaxed));
  };
  const auto value_size = [&](std::size_t offset) {
    return 8 * high_half(load(word_at(offset) + kSizeWord, std::memory_order_relaxed));
  };
  auto best = vacant.end();
  for (auto it = vacant.begin(); it != vacant.end(); ++it) {
    if (record_size(*it) < record_bytes || value_size(*it) < value_bytes) continue;
    if (best == vacant.end() ||
        record_size(*it) + value_size(*it) < record_size(*best) + value_size(*best)) {
      best = it;
    }
  }
  if (best != vacant.end()) {
    const std::size_t offset = *best;
    vacant.erase(best);
    return offset;
  }

  const std::size_t offset = load(word_at(8 * kDirectoryEndWord), std::memory_order_relaxed);
  const std::size_t values = load(word_at(8 * kValuesBeginWord), std::memory_order_relaxed);
  if (record_bytes + value_bytes > values - offset) {
    throw PageFull("counters page of " + std::to_string(size_bytes) + " bytes is full: " +
                   std::to_string(live.size()) + " series, " + std::to_string(values - offset) +
                   " bytes left, " + std::to_string(record_bytes + value_bytes) + " needed");
  }
  std::uint64_t* words = word_at(offset);
  store(words + kSizeWord,
        pack(static_cast<std::uint32_t>(record_bytes), static_cast<std::uint32_t>(value_bytes / 8)),
        std::memory_order_release);
  store(words + kValuesWord, values - value_bytes, std::memory_order_release);
  rewrite(offset, 0, {});
  store(word_at(8 * kValuesBeginWord), values - value_bytes, std::memory_order_release);
  store(word_at(8 * kDirectoryEndWord), offset + record_bytes, std::memory_order_release);
  const std::size_t granule = offset / kGranule;
  record_starts[granule / 64].fetch_or(std::uint64_t{1} << granule % 64, std::memory_order_release);
  return offset;
}

// Gives a record a new kind and text and sets its values to zero, under its sequence word.
void CountersPage::State::rewrite(std::size_t offset, std::uint32_t kind, std::string_view text) {
  constexpr auto kRelease = std::memory_order_release;
  std::uint64_t* words = word_at(offset);
  const std::uint64_t sequence = load(words, std::memory_order_relaxed);
  // 2^39 rewrites of one record do not happen: a slot has 40 bits for the sequence.
  store(words, sequence + 1, std::memory_order_relaxed);

  store(words + kKindWord, pack(kind, static_cast<std::uint32_t>(text.size())), kRelease);
  store(words + kChecksumWord, record_checksum(words, text), kRelease);
  for (std::size_t at = 0; at < text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    store(words + (kRecordHeaderBytes + at) / 8, word, kRelease);
  }
  std::uint64_t* values = word_at(load(words + kValuesWord, std::memory_order_relaxed));
  const std::size_t count = high_half(load(words + kSizeWord, std::memory_order_relaxed));
  for (std::size_t i = 0; i < count; ++i) store(values + i, 0, kRelease);

  store(words, sequence + 2, kRelease);
}

void CountersPage::State::retire(Slot slot) {
  const std::scoped_lock lock(registering);
  Record record;
  if (!find(slot, record)) return;
  const auto identity = identities.find(slot);
  const auto family = families.find(std::string(RecordText::name_of(identity->second)));
  if (--family->second.series == 0) families.erase(family);
  live.erase(identity->second);
  identities.erase(identity);
  rewrite(offset_of(slot), 0, {});
  vacant.push_back(offset_of(slot));
}

// False: the series was retired. Throws std::invalid_argument for a number that never was a slot.
bool CountersPage::State::find(Slot slot, Record& record) const {
  const std::size_t offset = offset_of(slot);
  const std::uint64_t sequence = sequence_of(slot);
  const std::uint64_t* words = word_at(offset);
  const std::uint64_t present =
      is_record(offset) ? load(words, std::memory_order_acquire) : std::uint64_t{0};
  if (sequence == 0 || sequence % 2 != 0 || sequence > present) {
    throw std::invalid_argument("slot " + std::to_string(slot) + " is not of this counters page");
  }
  if (sequence != present) return false;
  const auto word = [&](RecordWord at) { return load(words + at, std::memory_order_relaxed); };
  record = {words, static_cast<SeriesKind>(low_half(word(kKindWord))), word_at(word(kValuesWord))};
  return true;
}

// Does a record start here? Asked by every update, so the answer takes no lock.
bool CountersPage::State::is_record(std::size_t offset) const noexcept {
  const std::size_t granule = offset / kGranule;
  return granule / 64 < record_starts.size() &&
         (record_starts[granule / 64].load(std::memory_order_acquire) >> granule % 64 & 1) != 0;
}

CountersPage::CountersPage(std::size_t size_bytes) {
  if (size_bytes < kMinBytes || size_bytes > kMaxBytes) {
    throw std::invalid_argument("a counters page has " + std::to_string(kMinBytes) + " to " +
                                std::to_string(kMaxBytes) + " bytes, not " +
                                std::to_string(size_bytes));
  }
  state_ = std::make_unique<State>(size_bytes);
}

CountersPage::~CountersPage() = default;

int CountersPage::fd() const noexcept { return state_->fd; }

std::span<const std::byte> CountersPage::bytes() const noexcept {
  return {state_->base, state_->size_bytes};
}

Slot CountersPage::counter(std::string_view name, std::span<const Label> labels) {
  return state_->slot_of(SeriesKind::kCounter, {name, {labels.begin(), labels.end()}, {}});
}

Slot CountersPage::gauge(std::string_view name, std::span<const Label> labels) {
  return state_->slot_of(SeriesKind::kGauge, {name, {labels.begin(), labels.end()}, {}});
}

Slot CountersPage::histogram(std::string_view name, std::span<const Label> labels,
                             std::span<const double> bounds) {
  if (bounds.empty()) throw std::invalid_argument("a histogram needs at least one bound");
  return state_->slot_of(SeriesKind::kHistogram, {name, {labels.begin(), labels.end()}, bounds});
}

void CountersPage::retire(Slot slot) { state_->retire(slot); }

void CountersPage::add(Slot slot, std::uint64_t amount) {
  Record record;
  if (!state_->find(slot, record)) return;
  if (record.kind == SeriesKind::kHistogram) throw std::invalid_argument("a histogram observes");
  if (record.kind == SeriesKind::kCounter) {
    add_whole(record.values, amount);
  } else {
    add_double(record.values, static_cast<double>(amount));
  }
}

void CountersPage::add(Slot slot, double amount) {
  Record record;
  if (!state_->find(slot, record)) return;
  if (record.kind == SeriesKind::kHistogram) throw std::invalid_argument("a histogram observes");
  if (record.kind == SeriesKind::kCounter && !(amount >= 0 && std::isfinite(amount))) {
    throw std::invalid_argument("a counter cannot take " + std::to_string(amount));
  }
  add_double(record.values + (record.kind == SeriesKind::kCounter ? 1 : 0), amount);
}

void CountersPage::set(Slot slot, double value) {
  Record record;
  if (!state_->find(slot, record)) return;
  if (record.kind != SeriesKind::kGauge) throw std::invalid_argument("only a gauge can be set");
  store(record.values, std::bit_cast<std::uint64_t>(value), std::memory_order_relaxed);
}

void CountersPage::observe(Slot slot, double value) {
  Record record;
  if (!state_->find(slot, record)) return;
  if (record.kind != SeriesKind::kHistogram) {
    throw std::invalid_argument("only a histogram observes");
  }
  observe_value(record.values, record.bounds(), value);
}

struct Recorder::Target {
  Record record;
  std::uint64_t sequence;
};

Recorder::Recorder(const CountersPage& page, std::span<const Slot> slots) {
  if (slots.size() > kMaxSeries) {
    throw std::invalid_argument("a recorder updates at most " + std::to_string(kMaxSeries) +
                                " series, not " + std::to_string(slots.size()));
  }
  targets_.reserve(slots.size());
  for (const Slot slot : slots) {
    Record record;
    if (!page.state_->find(slot, record)) {
      throw std::invalid_argument("slot " + std::to_string(slot) + " is retired");
    }
    targets_.push_back({record, sequence_of(slot)});
  }
}

Recorder::~Recorder() = default;
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;

std::size_t Recorder::size() const noexcept { return targets_.size(); }

void Recorder::record(std::span<const double> values) const noexcept {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const auto& [record, sequence] = targets_[i];
    const double value = values[i];
    if (load(record.words, std::memory_order_acquire) != sequence) continue;
    switch (record.kind) {
      case SeriesKind::kCounter:
        // Whole amounts go to the whole word, so that they stay exact.
        if (!(value > 0 && value < 0x1p64)) break;
        if (const auto whole = static_cast<std::uint64_t>(value);
            static_cast<double>(whole) == value) {
          add_whole(record.values, whole);
        } else {
          add_double(record.values + 1, value);
        }
        break;
      case SeriesKind::kGauge:
        store(record.values, std::bit_cast<std::uint64_t>(value), std::memory_order_relaxed);
        break;
      case SeriesKind::kHistogram:
        observe_value(record.values, record.bounds(), value);
        break;
    }
  }
}

}  // namespace anabranch
