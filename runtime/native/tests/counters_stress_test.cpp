// Many threads write, register and retire while others read: nothing is lost, nothing is mixed.
// Run under ThreadSanitizer; writers and readers use the same mapping, so that it sees both sides.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "anabranch/counters_page.h"
#include "anabranch/counters_reader.h"
#include "check.h"

using namespace anabranch;

namespace {

constexpr int kWriters = 4;
constexpr int kRounds = 20000;
constexpr int kReloads = 6001;  // leaves series behind for the readers' last look
const std::vector<double> kBounds = {1.0, 2.0, 3.0};

}  // namespace

TEST(updates_of_one_series_from_many_threads_all_count) {
  CountersPage page(65536);
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      for (const Series& series : read_counters(page.bytes())) {
        CHECK(series.value >= 0 && series.value <= 4.0 * kWriters * kRounds);
      }
    }
  });
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&] {
      // Every thread registers for itself: all get the same slots.
      const std::vector<Slot> slots = {page.counter("c", {}), page.histogram("h", {}, kBounds)};
      const Slot seconds = page.counter("seconds", {});
      const Slot gauge = page.gauge("g", {});
      const Recorder recorder(page, slots);
      for (int i = 0; i < kRounds; ++i) {
        recorder.record(std::vector{1.0, static_cast<double>(i % 4)});
        page.add(slots[0], std::uint64_t{1});
        page.add(seconds, 0.5);
        page.add(gauge, i % 2 == 0 ? 1.0 : -1.0);
        page.observe(slots[1], 1.5);
      }
    });
  }
  for (auto& writer : writers) writer.join();
  done = true;
  reader.join();

  const auto all = read_counters(page.bytes());
  CHECK_EQ(all.size(), 4u);
  constexpr double kTotal = kWriters * kRounds;
  for (const Series& series : all) {
    if (series.name == "c") CHECK_EQ(series.value, 2 * kTotal);
    if (series.name == "seconds") CHECK_EQ(series.value, 0.5 * kTotal);
    if (series.name == "g") CHECK_EQ(series.value, 0.0);
    if (series.name != "h") continue;
    CHECK_EQ(series.value, 1.5 * kTotal + 1.5 * kTotal);
    const auto quarter = static_cast<std::uint64_t>(kTotal / 4);
    CHECK((series.buckets ==
           std::vector<std::uint64_t>{2 * quarter, quarter + 4 * quarter, quarter, 0}));
  }
}

// Series come and go in the same records while readers look. Everything in a series says its number
// over and over, so a mixture of two would show; and it is long, so that writing takes its time.
TEST(readers_never_see_a_mixture_of_two_series) {
  CountersPage page(131072);
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> seen = 0;
  const auto description = [](int number) {
    std::string value;
    for (int i = 0; i < 500; ++i) value += std::to_string(1000000 + number);
    return std::vector<Label>{{"n", value}};
  };
  const auto look = [&] {
    for (const Series& series : read_counters(page.bytes())) {
      const int number = std::stoi(series.name.substr(2));
      CHECK(series.labels == description(number));
      if (series.kind == SeriesKind::kHistogram) {
        CHECK(series.bounds.size() == 100 && series.bounds[0] == number);
        CHECK(series.bounds[99] == number + 99);
        CHECK(series.buckets.size() == 101 && series.buckets[100] <= 1);
      } else {
        CHECK(series.value == number || series.value == 0);  // registered, but not yet set
      }
      ++seen;
    }
  };
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      for (bool last = false; !last;) {
        last = done;
        look();
      }
    });
  }
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      std::vector<Slot> live;
      for (int i = 0; i < kReloads; ++i) {
        const int number = 2 * i + w;
        const auto labels = description(number);
        if (i % 3 == 0) {
          std::vector<double> bounds;
          for (int b = 0; b < 100; ++b) bounds.push_back(number + b);
          live.push_back(page.histogram("h_" + std::to_string(number), labels, bounds));
          page.observe(live.back(), number + 1000);
        } else {
          live.push_back(page.gauge("g_" + std::to_string(number), labels));
          page.set(live.back(), number);
        }
        if (live.size() == 4) {
          for (const Slot slot : live) page.retire(slot);
          live.clear();
        }
      }
    });
  }
  for (auto& writer : writers) writer.join();
  done = true;
  for (auto& reader : readers) reader.join();
  CHECK(seen > 0);
}

int main() { return anabranch::testing::run_tests(); }
