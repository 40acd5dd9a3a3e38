// The counters of one worker process, in a page of shared memory that other processes read.
//
// The page is a sealed memfd: its size is fixed, and after `create` nobody else can map it for
// writing. The byte layout is in docs/formats.md, section "Counters page".
//
// Thread-safety: every function of CountersPage and Recorder may be called from any thread of the
// process that created the page. Updates are relaxed atomics and never lost; registration takes a
// lock that no update takes.
// Invariants: a registered series keeps its slot, kind, labels and bounds until it is retired, and
// its slot is never given to another series; an update of a retired series is dropped.
// Units: whatever the metric's name says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anabranch {

using Label = std::pair<std::string, std::string>;

// A series of one page. Only the page that issued a slot may be given it.
using Slot = std::uint64_t;

// The page has no room for another series.
class PageFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CountersPage {
 public:
  static constexpr std::size_t kMinBytes = 4096;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

  // A new, empty page of `size_bytes`, rounded up to whole 4 KiB. Memory is taken as series are
  // added, not at once. Throws std::invalid_argument for a size outside kMinBytes..kMaxBytes and
  // std::system_error when the kernel refuses.
  explicit CountersPage(std::size_t size_bytes);
  ~CountersPage();
  CountersPage(const CountersPage&) = delete;
  CountersPage& operator=(const CountersPage&) = delete;

  // The memfd, to be handed to readers; closed with the page, while mappings of it live on.
  int fd() const noexcept;
  // The page as its readers map it.
  std::span<const std::byte> bytes() const noexcept;

  // The slot of a series, which is added when no live one has this name and these labels (in any
  // order). Throws std::invalid_argument for a malformed or repeated label, a malformed name, or a
  // name that is in use with another kind or other bounds; PageFull.
  Slot counter(std::string_view name, std::span<const Label> labels);
  Slot gauge(std::string_view name, std::span<const Label> labels);
  // `bounds` are the inclusive upper ends of all buckets but the last, finite and ascending.
  Slot histogram(std::string_view name, std::span<const Label> labels,
                 std::span<const double> bounds);

  // Takes the series away from readers; its space is used again. To be called when the last update
  // of the series has returned. Retiring twice does nothing.
  void retire(Slot slot);

  // Counter or gauge += amount. Counters never fall: throws std::invalid_argument for a negative
  // or non-finite amount, and for a histogram. Whole amounts stay exact up to 2^64.
  void add(Slot slot, std::uint64_t amount);
  void add(Slot slot, double amount);
  // Gauge = value. Throws std::invalid_argument for another kind.
  void set(Slot slot, double value);
  // Counts `value` in its bucket. NaN counts in the last one and is left out of the sum. Throws
  // std::invalid_argument for another kind.
  void observe(Slot slot, double value);

 private:
  friend class Recorder;
  struct State;
  std::unique_ptr<State> state_;
};

// A fixed list of series that are always updated together: the per-request path.
//
// Must not outlive its page.
class Recorder {
 public:
  static constexpr std::size_t kMaxSeries = 32;

  // Throws std::invalid_argument for more than kMaxSeries slots, and for a slot that this page
  // never issued or has retired.
  Recorder(const CountersPage& page, std::span<const Slot> slots);
  ~Recorder();
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;

  std::size_t size() const noexcept;

  // values[i] goes to the i-th series: added to a counter, set on a gauge, observed by a
  // histogram. `values` has size() elements. Never throws: a counter ignores what is not a
  // positive finite number.
  void record(std::span<const double> values) const noexcept;

 private:
  struct Target;
  std::vector<Target> targets_;
};

}  // namespace anabranch
