#include "anabranch/counters_page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "anabranch/counters_reader.h"
#include "check.h"

using namespace anabranch;

namespace {

const std::vector<Label> kLabels = {{"model", "ctr"}, {"version", "42"}};
const std::vector<double> kBounds = {1.0, 2.0, 5.0};

std::optional<Series> find(const CountersPage& page, std::string_view name) {
  for (Series& series : read_counters(page.bytes())) {
    if (series.name == name) return std::move(series);
  }
  return std::nullopt;
}

double value_of(const CountersPage& page, std::string_view name) {
  const auto series = find(page, name);
  return series ? series->value : std::nan("");
}

std::string numbered(const char* stem, std::size_t i) { return stem + std::to_string(i); }

}  // namespace

TEST(a_new_page_has_no_series) {
  const CountersPage page(5000);
  CHECK_EQ(page.bytes().size(), 8192u);
  CHECK(read_counters(page.bytes()).empty());
}

TEST(sizes_out_of_range_are_refused) {
  CHECK_THROWS(std::invalid_argument, "4096 to", CountersPage(4095));
  CHECK_THROWS(std::invalid_argument, "4096 to", CountersPage(CountersPage::kMaxBytes + 1));
}

TEST(a_reader_of_the_descriptor_sees_what_was_written) {
  CountersPage page(65536);
  page.add(page.counter("requests_total", kLabels), std::uint64_t{3});
  const CountersReader reader(page.fd());
  page.set(page.gauge("queue", {}), -2.5);
  const auto all = reader.read();
  CHECK_EQ(all.size(), 2u);
  CHECK(all[0].kind == SeriesKind::kCounter);
  CHECK_EQ(all[0].name, "requests_total");
  CHECK(all[0].labels == kLabels);
  CHECK_EQ(all[0].value, 3.0);
  CHECK(all[1].kind == SeriesKind::kGauge);
  CHECK(all[1].labels.empty());
  CHECK_EQ(all[1].value, -2.5);
}

TEST(the_page_outlives_its_writer_in_a_reader) {
  auto page = std::make_unique<CountersPage>(65536);
  page->add(page->counter("a", {}), std::uint64_t{1});
  const int kept = ::dup(page->fd());
  page.reset();
  const CountersReader reader(kept);
  ::close(kept);
  CHECK_EQ(reader.read().at(0).value, 1.0);
}

TEST(nobody_else_can_write_shrink_or_grow_the_page) {
  const CountersPage page(65536);
  CHECK(::ftruncate(page.fd(), 4096) != 0 && errno == EPERM);
  CHECK(::ftruncate(page.fd(), 1 << 20) != 0 && errno == EPERM);
  CHECK(::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, page.fd(), 0) == MAP_FAILED);
}

TEST(counters_keep_whole_and_fractional_amounts) {
  CountersPage page(65536);
  const Slot slot = page.counter("a", {});
  page.add(slot, std::uint64_t{1} << 53);
  page.add(slot, std::uint64_t{1});
  page.add(slot, std::uint64_t{1});
  CHECK_EQ(value_of(page, "a"), 0x1p53 + 2);
  const Slot seconds = page.counter("b", {});
  page.add(seconds, 0.25);
  page.add(seconds, std::uint64_t{2});
  page.add(seconds, 0.5);
  CHECK_EQ(value_of(page, "b"), 2.75);
}

TEST(counters_refuse_to_fall) {
  CountersPage page(65536);
  const Slot slot = page.counter("a", {});
  for (const double amount : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS(std::invalid_argument, "a counter cannot take", page.add(slot, amount));
  }
  CHECK_EQ(value_of(page, "a"), 0.0);
}

TEST(gauges_rise_and_fall) {
  CountersPage page(65536);
  const Slot slot = page.gauge("a", {});
  page.set(slot, 10);
  page.add(slot, -2.5);
  page.add(slot, std::uint64_t{1});
  CHECK_EQ(value_of(page, "a"), 8.5);
}

TEST(histograms_count_each_value_once) {
  CountersPage page(65536);
  const Slot slot = page.histogram("h", kLabels, kBounds);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {-1.0, 1.0, 1.5, 2.0, 5.0, 5.5, kInfinity}) page.observe(slot, value);
  const auto series = find(page, "h");
  CHECK(series->kind == SeriesKind::kHistogram);
  CHECK(series->bounds == kBounds);
  CHECK((series->buckets == std::vector<std::uint64_t>{2, 2, 1, 2}));
  CHECK_EQ(series->value, kInfinity);
}

TEST(nan_counts_in_the_last_bucket_and_not_in_the_sum) {
  CountersPage page(65536);
  const Slot slot = page.histogram("h", {}, kBounds);
  page.observe(slot, std::nan(""));
  page.observe(slot, 1.5);
  const auto series = find(page, "h");
  CHECK((series->buckets == std::vector<std::uint64_t>{0, 1, 0, 1}));
  CHECK_EQ(series->value, 1.5);
}

TEST(the_same_name_and_labels_are_the_same_series) {
  CountersPage page(65536);
  const Slot slot = page.counter("a", kLabels);
  const std::vector<Label> reversed(kLabels.rbegin(), kLabels.rend());
  CHECK_EQ(page.counter("a", reversed), slot);
  CHECK(page.counter("a", {}) != slot);
  CHECK(page.counter("b", kLabels) != slot);
  const Slot histogram = page.histogram("h", kLabels, kBounds);
  CHECK_EQ(page.histogram("h", reversed, kBounds), histogram);
  CHECK_EQ(read_counters(page.bytes()).size(), 4u);
}

TEST(a_name_keeps_its_kind_and_a_series_its_bounds) {
  CountersPage page(65536);
  page.counter("a", kLabels);
  CHECK_THROWS(std::invalid_argument, "\"a\" is in use with another kind", page.gauge("a", {}));
  page.histogram("h", {}, kBounds);
  const double others[] = {1.0};
  CHECK_THROWS(std::invalid_argument, "other bounds", page.histogram("h", {}, others));
}

TEST(malformed_descriptions_are_refused) {
  CountersPage page(65536);
  CHECK_THROWS(std::invalid_argument, "is no metric name", page.counter("", {}));
  CHECK_THROWS(std::invalid_argument, "is no metric name", page.counter("1a", {}));
  CHECK_THROWS(std::invalid_argument, "is no metric name", page.counter("a b", {}));
  const Label spaced[] = {{"a-b", "x"}};
  CHECK_THROWS(std::invalid_argument, "is no label name", page.counter("a", spaced));
  const Label twice[] = {{"k", "1"}, {"k", "2"}};
  CHECK_THROWS(std::invalid_argument, "given twice", page.counter("a", twice));
  const double falling[] = {2.0, 1.0};
  CHECK_THROWS(std::invalid_argument, "ascending", page.histogram("h", {}, falling));
  const double unbounded[] = {1.0, std::numeric_limits<double>::infinity()};
  CHECK_THROWS(std::invalid_argument, "finite", page.histogram("h", {}, unbounded));
  CHECK_THROWS(std::invalid_argument, "at least one bound", page.histogram("h", {}, {}));
  CHECK(read_counters(page.bytes()).empty());
}

TEST(updates_of_the_wrong_kind_are_refused) {
  CountersPage page(65536);
  const Slot counter = page.counter("c", {});
  const Slot gauge = page.gauge("g", {});
  const Slot histogram = page.histogram("h", {}, kBounds);
  CHECK_THROWS(std::invalid_argument, "only a gauge", page.set(counter, 1));
  CHECK_THROWS(std::invalid_argument, "only a gauge", page.set(histogram, 1));
  CHECK_THROWS(std::invalid_argument, "only a histogram", page.observe(gauge, 1));
  CHECK_THROWS(std::invalid_argument, "only a histogram", page.observe(counter, 1));
  CHECK_THROWS(std::invalid_argument, "a histogram observes", page.add(histogram, 1.0));
  CHECK_THROWS(std::invalid_argument, "a histogram observes",
               page.add(histogram, std::uint64_t{1}));
}

TEST(numbers_that_are_no_slot_touch_nothing) {
  CountersPage page(65536);
  const Slot counter = page.counter(std::string(500, 'a'), kLabels);
  const Slot histogram = page.histogram("h", {}, kBounds);
  page.retire(page.gauge("retired", {}));  // its record has a sequence too, but no series
  const std::vector<std::byte> before(page.bytes().begin(), page.bytes().end());
  for (std::size_t granule = 0; granule < 2000; ++granule) {
    // No sequence, a half-written one, and the very word that stands there.
    std::uint64_t there = 0;
    if (granule < 1024) std::memcpy(&there, page.bytes().data() + granule * 64, sizeof there);
    for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{1}, there}) {
      const Slot slot = sequence << 24 | granule;
      if (slot == counter || slot == histogram) continue;
      try {
        page.set(slot, 7);
      } catch (const std::invalid_argument&) {
      }
    }
    CHECK_THROWS(std::invalid_argument, "is not of this counters page", page.set(granule, 7));
  }
  CHECK(std::ranges::equal(before, page.bytes()));
}

TEST(a_full_page_says_so_and_keeps_working) {
  CountersPage page(4096);
  const Slot first = page.counter("first", {});
  std::size_t added = 1;
  CHECK_THROWS(
      PageFull, "counters page of 4096 bytes is full",
      for (;; ++added) { page.counter(numbered("c", added), {}); });
  CHECK_EQ(added, 31u);  // 4096 - 64 bytes, 128 for a counter
  page.add(first, std::uint64_t{5});
  CHECK_EQ(page.counter("first", {}), first);
  CHECK_EQ(value_of(page, "first"), 5.0);
  CHECK_EQ(read_counters(page.bytes()).size(), added);
  page.retire(first);
  page.counter("another", {});
}

TEST(retired_series_vanish_and_drop_updates) {
  CountersPage page(65536);
  const Slot slot = page.counter("a", kLabels);
  const Recorder recorder(page, std::vector{slot});
  page.retire(slot);
  page.retire(slot);
  CHECK(read_counters(page.bytes()).empty());
  page.add(slot, std::uint64_t{1});
  page.set(slot, 1.0);
  recorder.record(std::vector{1.0});
  CHECK_THROWS(std::invalid_argument, "is retired", Recorder(page, std::vector{slot}));

  const Slot next = page.counter("a", kLabels);
  CHECK(next != slot);
  page.add(slot, std::uint64_t{1});
  recorder.record(std::vector{1.0});
  CHECK_EQ(value_of(page, "a"), 0.0);
  page.retire(next);
  page.gauge("a", kLabels);  // the name is free for another kind
}

TEST(a_thousand_reloads_need_no_more_room_than_two) {
  CountersPage page(16384);
  std::vector<Slot> previous;
  for (std::size_t version = 1; version <= 1000; ++version) {
    const std::vector<Label> labels = {{"model", "ctr"}, {"version", numbered("", version)}};
    std::vector<Slot> slots = {page.counter("requests_total", labels),
                               page.gauge("lookups", labels),
                               page.histogram("duration_seconds", labels, kBounds)};
    for (const Slot slot : slots) CHECK(std::ranges::find(previous, slot) == previous.end());
    page.add(slots[0], std::uint64_t{version});
    for (const Slot slot : previous) page.retire(slot);
    previous = std::move(slots);
  }
  const auto all = read_counters(page.bytes());
  CHECK_EQ(all.size(), 3u);
  CHECK_EQ(value_of(page, "requests_total"), 1000.0);
}

TEST(a_recorder_updates_its_series_in_order) {
  CountersPage page(65536);
  const std::vector<Slot> slots = {page.counter("c", {}), page.gauge("g", {}),
                                   page.histogram("h", {}, kBounds)};
  const Recorder recorder(page, slots);
  CHECK_EQ(recorder.size(), 3u);
  recorder.record(std::vector{2.0, 7.0, 1.5});
  recorder.record(std::vector{0.5, 8.0, 9.0});
  recorder.record(std::vector{-3.0, 6.0, 9.0});
  recorder.record(std::vector{std::nan(""), 5.0, 9.0});
  CHECK_EQ(value_of(page, "c"), 2.5);
  CHECK_EQ(value_of(page, "g"), 5.0);
  CHECK((find(page, "h")->buckets == std::vector<std::uint64_t>{0, 1, 0, 3}));
}

TEST(a_recorder_has_a_largest_size) {
  CountersPage page(65536);
  const std::vector<Slot> slots(Recorder::kMaxSeries + 1, page.counter("c", {}));
  CHECK_THROWS(std::invalid_argument, "at most 32 series", Recorder(page, slots));
}

int main() { return anabranch::testing::run_tests(); }
