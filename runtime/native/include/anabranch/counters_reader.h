// Reads the counters page of another process, alive or dead.
//
// Thread-safety: `read` may be called from any thread, at any time, beside the page's writers.
// Invariants: the mapping is read-only; whatever the page holds, `read` stays inside it, and ends.
// A returned series is one that the page held: never a mixture of two. Its values are each exact
// at some moment of the call, not all at the same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "anabranch/counters_page.h"

namespace anabranch {

enum class SeriesKind : std::uint32_t { kCounter = 1, kGauge = 2, kHistogram = 3 };

struct Series {
  SeriesKind kind;
  std::string name;
  std::vector<Label> labels;   // ascending by key
  std::vector<double> bounds;  // histogram: inclusive upper ends of all buckets but the last
  std::vector<std::uint64_t> buckets;  // histogram: observations per bucket, bounds.size() + 1
  double value;  // counter or gauge: its value; histogram: sum of observations
};

// The page is damaged, truncated, of a newer format, or no counters page at all.
class DamagedPage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every live series, in the order of the page. A record that stays half-written (its writer died in
// the act) is left out. `page` starts on a multiple of 8 bytes. Throws DamagedPage.
std::vector<Series> read_counters(std::span<const std::byte> page);

class CountersReader {
 public:
  // Maps the page; `fd` stays the caller's and may be closed afterwards.
  // Throws DamagedPage, and std::system_error when the descriptor cannot be mapped.
  explicit CountersReader(int fd);
  ~CountersReader();
  CountersReader(const CountersReader&) = delete;
  CountersReader& operator=(const CountersReader&) = delete;

  std::vector<Series> read() const { return read_counters(page_); }
  std::size_t size_bytes() const noexcept { return page_.size(); }

 private:
  std::span<const std::byte> page_;
};

}  // namespace anabranch
