#include "anabranch/counters_page.h"

#include <cmath>

#include "counters_directory.h"
#include "sealed_memory.h"

namespace anabranch {
namespace {

using counters_layout::add_double;
using counters_layout::add_whole;
using counters_layout::Record;
using counters_layout::RecordText;

std::size_t checked(std::size_t size_bytes) {
  if (size_bytes < CountersPage::kMinBytes || size_bytes > CountersPage::kMaxBytes) {
    throw std::invalid_argument("a counters page has " + std::to_string(CountersPage::kMinBytes) +
                                " to " + std::to_string(CountersPage::kMaxBytes) + " bytes, not " +
                                std::to_string(size_bytes));
  }
  return counters_layout::round_up(size_bytes, counters_layout::kPageStep);
}

RecordText describe(std::string_view name, std::span<const Label> labels,
                    std::span<const double> bounds) {
  return {name, {labels.begin(), labels.end()}, bounds};
}

}  // namespace

struct CountersPage::State {
  explicit State(std::size_t size_bytes)
      : memory("anabranch-counters", size_bytes), directory(memory.bytes()) {}

  SealedMemory memory;
  counters_layout::CountersDirectory directory;
};

CountersPage::CountersPage(std::size_t size_bytes)
    : state_(std::make_unique<State>(checked(size_bytes))) {}

CountersPage::~CountersPage() = default;

int CountersPage::fd() const noexcept { return state_->memory.fd(); }

std::span<const std::byte> CountersPage::bytes() const noexcept { return state_->memory.bytes(); }

Slot CountersPage::counter(std::string_view name, std::span<const Label> labels) {
  return state_->directory.add(SeriesKind::kCounter, describe(name, labels, {}));
}

Slot CountersPage::gauge(std::string_view name, std::span<const Label> labels) {
  return state_->directory.add(SeriesKind::kGauge, describe(name, labels, {}));
}

Slot CountersPage::histogram(std::string_view name, std::span<const Label> labels,
                             std::span<const double> bounds) {
  if (bounds.empty()) throw std::invalid_argument("a histogram needs at least one bound");
  return state_->directory.add(SeriesKind::kHistogram, describe(name, labels, bounds));
}

void CountersPage::retire(Slot slot) { state_->directory.retire(slot); }

void CountersPage::add(Slot slot, std::uint64_t amount) {
  Record record;
  if (!state_->directory.find(slot, record)) return;
  switch (record.kind) {
    case SeriesKind::kCounter:
      return add_whole(record.values, amount);
    case SeriesKind::kGauge:
      return add_double(record.values, static_cast<double>(amount));
    case SeriesKind::kHistogram:
      throw std::invalid_argument("a histogram observes");
  }
}

void CountersPage::add(Slot slot, double amount) {
  Record record;
  if (!state_->directory.find(slot, record)) return;
  switch (record.kind) {
    case SeriesKind::kCounter:
      if (!(amount >= 0 && std::isfinite(amount))) {
        throw std::invalid_argument("a counter cannot take " + std::to_string(amount));
      }
      return add_double(record.values + 1, amount);
    case SeriesKind::kGauge:
      return add_double(record.values, amount);
    case SeriesKind::kHistogram:
      throw std::invalid_argument("a histogram observes");
  }
}

void CountersPage::set(Slot slot, double value) {
  Record record;
  if (!state_->directory.find(slot, record)) return;
  if (record.kind != SeriesKind::kGauge) throw std::invalid_argument("only a gauge can be set");
  record.set(value);
}

void CountersPage::observe(Slot slot, double value) {
  Record record;
  if (!state_->directory.find(slot, record)) return;
  if (record.kind != SeriesKind::kHistogram) {
    throw std::invalid_argument("only a histogram observes");
  }
  record.observe(value);
}

struct Recorder::Target : counters_layout::Record {};

Recorder::Recorder(const CountersPage& page, std::span<const Slot> slots) {
  if (slots.size() > kMaxSeries) {
    throw std::invalid_argument("a recorder updates at most " + std::to_string(kMaxSeries) +
                                " series, not " + std::to_string(slots.size()));
  }
  targets_.resize(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!page.state_->directory.find(slots[i], targets_[i])) {
      throw std::invalid_argument("slot " + std::to_string(slots[i]) + " is retired");
    }
  }
}

Recorder::~Recorder() = default;
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;

std::size_t Recorder::size() const noexcept { return targets_.size(); }

void Recorder::record(std::span<const double> values) const noexcept {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    const double value = values[i];
    if (!target.is_live()) continue;
    switch (target.kind) {
      case SeriesKind::kCounter:
        if (!(value > 0 && value < 0x1p64)) break;
        // Whole amounts go to the whole word, so that they stay exact.
        if (const auto whole = static_cast<std::uint64_t>(value);
            static_cast<double>(whole) == value) {
          add_whole(target.values, whole);
        } else {
          add_double(target.values + 1, value);
        }
        break;
      case SeriesKind::kGauge:
        target.set(value);
        break;
      case SeriesKind::kHistogram:
        target.observe(value);
        break;
    }
  }
}

}  // namespace anabranch
