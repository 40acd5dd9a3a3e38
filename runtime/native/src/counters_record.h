// A record of the counters page as its updates see it: lock-free, all relaxed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "anabranch/counters_reader.h"
#include "counters_layout.h"

namespace anabranch::counters_layout {

inline void add_whole(std::uint64_t* word, std::uint64_t amount) noexcept {
  std::atomic_ref<std::uint64_t>(*word).fetch_add(amount, std::memory_order_relaxed);
}

inline void add_double(std::uint64_t* word, double amount) noexcept {
  const std::atomic_ref<std::uint64_t> target(*word);
  std::uint64_t seen = target.load(std::memory_order_relaxed);
  std::uint64_t sum;
  do {
    sum = std::bit_cast<std::uint64_t>(std::bit_cast<double>(seen) + amount);
  } while (!target.compare_exchange_weak(seen, sum, std::memory_order_relaxed));
}

struct Record {
  const std::uint64_t* words;
  std::uint64_t sequence;  // that of the series this was made for
  SeriesKind kind;
  std::uint64_t* values;

  // False: the series was retired, and the record may be another's.
  bool is_live() const noexcept { return load(words, std::memory_order_acquire) == sequence; }

  void set(double value) const noexcept {
    store(values, std::bit_cast<std::uint64_t>(value), std::memory_order_relaxed);
  }

  // The bucket is the number of bounds below `value`; the sum comes before the buckets.
  void observe(double value) const noexcept {
    const std::uint64_t* text = words + kRecordHeaderBytes / 8;
    const std::size_t count = low_half(load(text, std::memory_order_relaxed));
    std::size_t bucket = 0;
    for (const std::uint64_t& bound : std::span(text + 1, count)) {
      bucket += !(value <= std::bit_cast<double>(load(&bound, std::memory_order_relaxed)));
    }
    add_whole(values + 1 + bucket, 1);
    if (!std::isnan(value)) add_double(values, value);
  }
};

}  // namespace anabranch::counters_layout
