// Speed of the readers of feature columns, one line a workload: best of many runs, for a column of
// 1,000 candidates.
//
//   cmake --build build/native-plain --target feature_columns_bench &&
//   build/native-plain/runtime/native/tests/features/feature_columns_bench
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "anabranch/features/json_column.h"
#include "anabranch/features/message_column.h"
#include "message_bytes.h"

using namespace anabranch::features;
namespace made = anabranch::testing;

namespace {

constexpr std::size_t kRows = 1000;
constexpr ColumnLimits kLimits{65536, 1 << 20, 1 << 20};
constexpr ColumnForm kInts{ValueType::kInt64};
constexpr ColumnForm kFloats{ValueType::kFloat32};
constexpr ColumnForm kStrings{ValueType::kString};
constexpr ColumnForm kVectors{ValueType::kFloat32, 8};
constexpr ColumnForm kIds{ValueType::kInt64, 1, true};
constexpr ColumnForm kTags{ValueType::kString, 1, true, true};

template <class Read>
void report(const char* what, const std::string& bytes, const ColumnForm& form, Read&& read) {
  ColumnStorage storage;
  std::vector<Fault> faults;
  double best = 1e9;
  for (int run = 0; run < 2000; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const RawColumn column = read(bytes, form, false, kLimits, storage, faults);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (column.rows != kRows || !faults.empty()) std::abort();
    best = std::min(best, took.count());
  }
  std::printf("%-44s %8.2f us %8.2f GB/s\n", what, best * 1e6,
              static_cast<double>(bytes.size()) / best / 1e9);
}

// An array of what `print` makes of random words.
template <class Print>
std::string rows_of(Print&& print) {
  std::mt19937_64 random(1);
  std::string text = "[";
  for (std::size_t i = 0; i < kRows; ++i) text += (i > 0 ? "," : "") + print(random);
  return text + "]";
}

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string hex(std::uint64_t word) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(word));
  return text;
}

double unit(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

void bench_json() {
  const auto json = [](const char* what, const ColumnForm& form, auto&& print) {
    report(what, rows_of(print), form, read_json_column);
  };
  json("json, int64 of 4 to 7 digits", kInts,
       [](auto& random) { return std::to_string(random() % 10000000); });
  json("json, int64 of 64 bits", kInts,
       [](auto& random) { return std::to_string(static_cast<std::int64_t>(random())); });
  json("json, int64 as decimal strings", kInts,
       [](auto& random) { return '"' + std::to_string(random() >> 1) + '"'; });
  json("json, float32 of 6 digits", kFloats,
       [](auto& random) { return number("%.6g", unit(random())); });
  json("json, float32 of 17 digits", kFloats,
       [](auto& random) { return number("%.17g", unit(random())); });
  json("json, float32, some null", kFloats, [](auto& random) {
    return random() % 16 == 0 ? std::string("null") : number("%.6g", unit(random()));
  });
  json("json, strings of 16 bytes", kStrings,
       [](auto& random) { return '"' + hex(random()) + '"'; });
  json("json, strings with escapes", kStrings,
       [](auto& random) { return '"' + hex(random()) + "\\u00e9\""; });
  json("json, strings of 16 bytes, not ASCII", kStrings,
       [](auto& random) { return '"' + hex(random()).substr(4) + "\xC3\xA9\xC3\xA9\""; });
  json("json, 8 floats a row", kVectors, [](auto& random) {
    std::string row = "[";
    for (int i = 0; i < 8; ++i) row += (i > 0 ? "," : "") + number("%.6g", unit(random()));
    return row + "]";
  });
  json("json, 4 ids a row", kIds, [](auto& random) {
    std::string row = "[";
    for (int i = 0; i < 4; ++i) row += (i > 0 ? "," : "") + std::to_string(random() % 100000);
    return row + "]";
  });
  json("json, 3 weighted tags a row", kTags, [](auto& random) {
    return "{\"ids\":[\"sale\",\"red\",\"" + hex(random()).substr(8) +
           "\"],\"weights\":[1.0,0.5,0.25]}";
  });
}

void bench_messages() {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> small;
  std::vector<std::int64_t> large;
  std::vector<float> floats;
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < kRows; ++i) {
    small.push_back(static_cast<std::int64_t>(random() % 10000000));
    large.push_back(static_cast<std::int64_t>(random()));
    floats.push_back(static_cast<float>(unit(random())));
    strings.push_back(hex(random()));
  }
  const auto message = [](const char* what, const std::string& bytes, const ColumnForm& form) {
    report(what, bytes, form, read_message_column);
  };
  message("message, int64 of 4 to 7 digits, packed", made::packed_int64s(small), kInts);
  message("message, int64 of 64 bits, packed", made::packed_int64s(large), kInts);
  message("message, int64, raw", made::raw_int64s(small), kInts);
  message("message, float32, packed", made::packed_floats(floats), kFloats);
  message("message, float32, raw", made::raw_floats(floats), kFloats);
  message("message, strings of 16 bytes", made::strings(strings), kStrings);
}

}  // namespace

int main() {
  bench_json();
  bench_messages();
}
