// What one core can read of a store, for benchmarks/lookup.py: a C interface for ctypes.
//
// - The limit: a read-only gather of rows, or of index groups, at given places, each place
//   prefetched `distance` places ahead. No lookup can be faster than its rows.
// - Lookups of one table through LookupPlan, batch after batch without Python between; this library
//   is built with and without versions, so that two builds of the same call can be compared.
//
// Thread-safety: an opened store is immutable; any thread. Errors: a null store or a negative
// number, and the message in the caller's buffer.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "anabranch/store/generation.h"
#include "anabranch/store/lookup.h"
#include "anabranch/store/segment.h"
#include "anabranch/store/slots.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using namespace anabranch::store;

struct Message {
  char text[256];
};

struct OpenStore {
  std::shared_ptr<const Segment> segment;
  std::shared_ptr<const Generation> generation;
  LookupPlan plan;  // table 0, one key a row, no combining to do
};

LookupPlan plan_of_first_table(const std::shared_ptr<const Generation>& generation) {
  LookupSpec lookup;
  lookup.feature = "key";
  lookup.table = 0;
  BufferSpec buffer;
  buffer.columns = generation->tables()[0].format.dim;
  return LookupPlan(generation, {lookup}, {buffer});
}

void explain(const std::exception& error, Message* message) {
  std::snprintf(message->text, sizeof message->text, "%s", error.what());
}

constexpr std::size_t kLine = 64;
typedef std::uint64_t Line __attribute__((vector_size(kLine)));

// The sum of all words of `count` records of `lines` cache lines each; so every byte is read.
// Words, not floats: index slots as floats are subnormal, which some processors add slowly.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "default")))
#endif
std::uint64_t gather(const std::byte* base, std::size_t stride, std::size_t lines,
                     const std::uint64_t* places, std::size_t count, std::size_t distance) {
  Line sum = {};
  for (std::size_t i = 0; i < count; ++i) {
    if (i + distance < count) {
      const std::byte* ahead = base + places[i + distance] * stride;
      for (std::size_t k = 0; k < lines; ++k) __builtin_prefetch(ahead + k * kLine);
    }
    const std::byte* record = base + places[i] * stride;
    for (std::size_t k = 0; k < lines; ++k) {
      Line line;
      std::memcpy(&line, record + k * kLine, kLine);
      sum += line;
    }
  }
  std::uint64_t total = 0;
  for (std::size_t k = 0; k < kLine / sizeof total; ++k) total += sum[k];
  return total;
}

}  // namespace

// Maps the generation behind one descriptor over the segment behind the other; both stay the
// caller's. Null on error.
EXPORTED OpenStore* store_open(int segment_fd, int generation_fd, Message* message) {
  try {
    auto segment = Segment::map(segment_fd, Residency::kPopulated);
    auto generation = Generation::map(generation_fd, segment);
    LookupPlan plan = plan_of_first_table(generation);
    return new OpenStore{std::move(segment), std::move(generation), std::move(plan)};
  } catch (const std::exception& error) {
    explain(error, message);
    return nullptr;
  }
}

EXPORTED void store_close(OpenStore* store) { delete store; }

// Home group of each key in the index of table 0, a hashed one.
EXPORTED void home_groups(const OpenStore* store, const std::uint64_t* keys, std::size_t count,
                          std::uint64_t* groups) {
  const TableView& table = store->generation->tables()[0];
  for (std::size_t i = 0; i < count; ++i) groups[i] = home_group(keys[i], table.seed, table.groups);
}

// Reads base rows of table 0, whose rows must be whole cache lines.
EXPORTED std::uint64_t gather_rows(const OpenStore* store, const std::uint64_t* rows,
                                   std::size_t count, std::size_t distance) {
  const TableView& table = store->generation->tables()[0];
  const std::size_t stride = table.format.stride();
  return gather(table.base, stride, stride / kLine, rows, count, distance);
}

// Reads groups of the index of table 0.
EXPORTED std::uint64_t gather_groups(const OpenStore* store, const std::uint64_t* groups,
                                     std::size_t count, std::size_t distance) {
  const TableView& table = store->generation->tables()[0];
  const auto* index = reinterpret_cast<const std::byte*>(table.index);
  return gather(index, sizeof(Group), 1, groups, count, distance);
}

// Looks up `batches` x `rows` keys in table 0, each batch into the same `out` (rows, dim). Returns
// how many keys were missing, -1 on error.
EXPORTED std::int64_t look_up(const OpenStore* store, const std::uint64_t* keys,
                              std::size_t batches, std::size_t rows, std::uint32_t version,
                              float* out, Message* message) {
  try {
    std::uint64_t seen = 0;
    std::uint64_t misses = 0;
    LookupArguments arguments;
    arguments.features.resize(1);
    arguments.outputs = {{out, static_cast<std::int64_t>(store->plan.buffers()[0].columns)}};
    arguments.keys = &seen;
    arguments.misses = &misses;
    const Batch batch{version, static_cast<std::int64_t>(rows)};
    for (std::size_t b = 0; b < batches; ++b) {
      FeatureInput& input = arguments.features[0];
      input.ids = keys + b * rows;
      input.ids_stride = 1;
      store->plan.run(arguments, batch);
    }
    return static_cast<std::int64_t>(misses);
  } catch (const std::exception& error) {
    explain(error, message);
    return -1;
  }
}
