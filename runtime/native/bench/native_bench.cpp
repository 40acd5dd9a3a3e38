// Speed of the core on this machine, one line a workload: best of many runs, in the unit named.
//
//   cmake --build build/native-plain --target native_bench &&
//   build/native-plain/runtime/native/native_bench
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "anabranch/counters_page.h"
#include "anabranch/crc32c.h"
#include "anabranch/json_numbers.h"
#include "anabranch/json_scan.h"

using namespace anabranch;

namespace {

constexpr std::size_t kNumbers = 200000;

template <class Work>
double best_seconds(Work&& work) {
  double best = 1e9;
  for (int run = 0; run < 40; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void report(const char* what, double value, const char* unit) {
  std::printf("%-40s %10.2f %s\n", what, value, unit);
}

// An array of numbers that `print` writes, one from each random word.
template <class Print>
std::string array_of(const char* separator, Print&& print) {
  std::mt19937_64 random(1);
  std::string text = "[";
  for (std::size_t i = 0; i < kNumbers; ++i) {
    char number[64];
    print(number, sizeof number, random());
    text += number;
    text += i + 1 < kNumbers ? separator : "]";
  }
  return text;
}

double unit(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

void parse(const char* what, Datatype type, const std::string& text) {
  const double seconds = best_seconds([&] { parse_numbers(text, type, kNumbers, 8); });
  report(what, kNumbers / seconds / 1e6, "M numbers/s");
}

void bench_json() {
  const auto fixed = [](const char* format) {
    return [format](char* to, std::size_t size, std::uint64_t word) {
      std::snprintf(to, size, format, unit(word));
    };
  };
  const auto whole = [](std::uint64_t range) {
    return [range](char* to, std::size_t size, std::uint64_t word) {
      std::snprintf(to, size, "%llu", static_cast<unsigned long long>(word % range));
    };
  };
  const std::string six = array_of(", ", fixed("%.6g"));
  parse("parse FP32, 6 digits", Datatype::kFp32, six);
  parse("parse FP32, 6 digits, no spaces", Datatype::kFp32, array_of(",", fixed("%.6g")));
  parse("parse FP32, 6 digits, any sign", Datatype::kFp32,
        array_of(", ", [](char* to, std::size_t size, std::uint64_t word) {
          std::snprintf(to, size, "%.6g", unit(word) * ((word & 1) != 0 ? -1 : 1));
        }));
  parse("parse FP32, 3 digits", Datatype::kFp32, array_of(", ", fixed("%.3g")));
  parse("parse FP32, 17 digits", Datatype::kFp32, array_of(", ", fixed("%.17g")));
  parse("parse FP64, 6 digits", Datatype::kFp64, six);
  parse("parse FP64, 17 digits", Datatype::kFp64, array_of(", ", fixed("%.17g")));
  parse("parse INT64, up to 9 digits", Datatype::kInt64, array_of(", ", whole(1000000000)));
  parse("parse INT64, up to 18 digits", Datatype::kInt64,
        array_of(", ", whole(1000000000000000000)));
  parse("parse INT32, up to 3 digits", Datatype::kInt32, array_of(", ", whole(1000)));

  std::mt19937_64 random(2);
  std::vector<float> floats(kNumbers);
  for (float& value : floats) value = static_cast<float>(unit(random()));
  const double dumping =
      best_seconds([&] { dump_numbers(Datatype::kFp32, std::as_bytes(std::span(floats))); });
  report("dump FP32", kNumbers / dumping / 1e6, "M numbers/s");

  const auto scan = [](const char* what, const std::string& text) {
    const double seconds = best_seconds([&] { scan_json(text, {32, 20000000, 1 << 20}); });
    report(what, static_cast<double>(text.size()) / seconds / 1e9, "GB/s");
  };
  scan("scan, numbers", six);
  std::string strings = "[";
  for (int i = 0; i < 50000; ++i) strings += "\"item-" + std::to_string(i) + "\",";
  scan("scan, short strings", strings + "\"\"]");
  std::string objects = "[";
  for (int i = 0; i < 50000; ++i) objects += "{\"a\":[1]},";
  scan("scan, small objects", objects + "{}]");
}

void bench_crc32c() {
  const std::vector<std::byte> data(1 << 20);
  for (const auto& implementation : crc32c_implementations()) {
    if (!implementation.supported) continue;
    for (const std::size_t size : {std::size_t{256}, std::size_t{4096}, data.size()}) {
      const std::size_t times = data.size() / size;
      const double seconds = best_seconds([&] {
        for (std::size_t i = 0; i < times; ++i)
          implementation.compute(std::span(data).first(size), 0);
      });
      const std::string what =
          "crc32c, " + std::string(implementation.name) + ", " + std::to_string(size) + " bytes";
      report(what.c_str(), static_cast<double>(data.size()) / seconds / 1e9, "GB/s");
    }
  }
}

void bench_counters() {
  CountersPage page(1 << 20);
  std::vector<double> bounds;
  for (int i = 0; i < 21; ++i) bounds.push_back(1e-4 * (1 << i));
  std::vector<Slot> slots = {page.counter("requests_total", {}), page.counter("rows_total", {})};
  for (const char* name : {"duration", "queue", "compute", "in", "out"})
    slots.push_back(page.histogram(name, {}, bounds));
  const Recorder recorder(page, slots);
  const std::vector<double> values = {1, 256, 0.004, 0.0001, 0.003, 420000, 3000};
  constexpr int kTimes = 100000;
  const double recording = best_seconds([&] {
    for (int i = 0; i < kTimes; ++i) recorder.record(values);
  });
  report("record 2 counters and 5 histograms", recording / kTimes * 1e9, "ns");
  const double adding = best_seconds([&] {
    for (int i = 0; i < kTimes; ++i) page.add(slots[0], std::uint64_t{1});
  });
  report("add to a counter", adding / kTimes * 1e9, "ns");
}

}  // namespace

int main() {
  bench_json();
  bench_crc32c();
  bench_counters();
}
