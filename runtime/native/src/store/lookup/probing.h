// Second stage of the pipeline: keys become rows, whose lines are fetched. A key is looked for in
// its home group; what lies behind it, and older versions, are find_rv's.
//
// Included by the kernels alone; see kernel.h on the unnamed namespace.
//
// Memory order. A key is published after its rv, and an rv after the bytes of its row, so a reader
// must see them in the order key, rv, row. The scalar form loads keys and rv with acquire. The
// vector form reads four keys with one or two plain vector loads: x86 reads every aligned
// eight-byte lane whole, and performs loads in program order whatever their width; the fence in
// between keeps the compiler to that order, and rv is loaded with acquire. A lane that was stale
// only misses a key that was inserted meanwhile, whose version is newer than the one being read.
// Other machines, and ThreadSanitizer, which knows nothing of vector loads, get the scalar form.
#pragma once

#include "anabranch/store/table_view.h"
#include "store/lookup/blocks.h"
#include "store/lookup/kernel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define ANABRANCH_SCALAR_PROBE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ANABRANCH_SCALAR_PROBE 1
#endif
#endif

namespace anabranch::store::lookup {
namespace {

// std::atomic_ref, but without a function body of the standard library; see kernel.h.
[[gnu::always_inline]] inline std::uint64_t acquire(const std::uint64_t& word) noexcept {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

// The slot of `key` in a group, or null. The key is no side key.
[[gnu::always_inline]] inline const Slot* match(const Group& group, std::uint64_t key) noexcept {
#if defined(__AVX512F__) && !defined(ANABRANCH_SCALAR_PROBE)
  const __m512i words = _mm512_load_si512(&group);
  const unsigned equal =
      _mm512_cmpeq_epi64_mask(words, _mm512_set1_epi64(static_cast<long long>(key))) & 0x55u;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return equal != 0 ? &group.slots[__builtin_ctz(equal) / 2] : nullptr;
#elif defined(__AVX2__) && !defined(ANABRANCH_SCALAR_PROBE)
  const auto* const halves = reinterpret_cast<const __m256i*>(&group);
  const __m256i wanted = _mm256_set1_epi64x(static_cast<long long>(key));
  const auto lower = static_cast<unsigned>(_mm256_movemask_pd(
      _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_load_si256(halves), wanted))));
  const auto upper = static_cast<unsigned>(_mm256_movemask_pd(
      _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_load_si256(halves + 1), wanted))));
  const unsigned equal = (lower | upper << 4) & 0x55u;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return equal != 0 ? &group.slots[__builtin_ctz(equal) / 2] : nullptr;
#else
  for (const Slot& slot : group.slots) {
    if (acquire(slot.key) == key) return &slot;
  }
  return nullptr;
#endif
}

[[gnu::always_inline]] inline bool overflowed(const Group& group) noexcept {
  return (acquire(group.slots[0].rv) & kOverflow) != 0;
}

// Second stage of the pipeline.
class Probing {
 public:
  explicit Probing(const Run& run) noexcept : run_(run) {}

  // Finds the rows of a block and fetches them. False: a key is missing that must not.
  bool probe(Block& block, Refusal& refusal) noexcept {
    for (int s = 0; s < block.pieces; ++s) {
      const Piece& piece = block.piece[s];
      const Feature& feature = run_.features[piece.feature];
      int misses;
      if (feature.table.is_dense()) {
        misses = piece.special ? probe_dense<true>(feature, block, piece)
                               : probe_dense<false>(feature, block, piece);
      } else {
        misses = piece.special ? probe_hashed<true>(feature, block, s)
                               : probe_hashed<false>(feature, block, s);
      }
      if (run_.keys != nullptr) count_keys(block, piece);
      if (misses != 0 && !settle(feature, block, piece, piece.begin, piece.end, misses, refusal)) {
        return false;
      }
    }
    return true;
  }

  // Looks behind the home groups, at lines that have been on their way since `probe`.
  bool probe_late(Block& block, Refusal& refusal) noexcept {
    for (int l = 0; l < block.late; ++l) {
      const Piece& piece = block.piece[block.later[l].piece];
      const Feature& feature = run_.features[piece.feature];
      const int id = block.later[l].id;
      const int misses = place(feature, block, id);
      if (misses != 0 && !settle(feature, block, piece, id, id + 1, misses, refusal)) return false;
    }
    return true;
  }

 private:
  [[gnu::always_inline]] static void set_row(const Feature& feature, Block& block, int id,
                                             std::uint32_t row) noexcept {
    const auto base = reinterpret_cast<std::uintptr_t>(feature.table.base);
    const std::uintptr_t origin = row < feature.table.base_rows ? base : feature.arena_origin;
    const auto* const at =
        reinterpret_cast<const std::byte*>(origin + std::uintptr_t{row} * feature.row_stride);
    block.rows[id] = at;
    fetch_row(at, feature.row_lines);
  }

  // The long way to the row of a key. Returns how many keys were missing.
  int place(const Feature& feature, Block& block, int id) const noexcept {
    const std::uint64_t rv = find_rv(feature.table, block.keys[id], run_.version);
    if (rv != 0) {
      set_row(feature, block, id, row_of(rv));
      return 0;
    }
    block.rows[id] = feature.missing;
    return 1;
  }

  template <bool kSpecial>
  int probe_hashed(const Feature& feature, Block& block, int s) const noexcept {
    const int end = block.piece[s].end;
    const std::uint32_t version = run_.version;
    const std::uint32_t limit = feature.row_limit;
    int misses = 0;
    for (int id = block.piece[s].begin; id < end; ++id) {
      if constexpr (kSpecial) {
        if (block.kinds[id] == IdKind::kPadding) {
          block.rows[id] = feature.padding;
          continue;
        }
        if (block.kinds[id] == IdKind::kSide) {
          misses += place(feature, block, id);
          continue;
        }
      }
      const Group& group = *block.home[id];
      const Slot* const slot = match(group, block.keys[id]);
      if (slot == nullptr) [[unlikely]] {
        block.rows[id] = feature.missing;
        if (overflowed(group)) {
          block.rows[id] = feature.zeros;
          fetch(behind(feature.table, &group));
          block.later[block.late++] = {s, id};
        } else {
          ++misses;
        }
        continue;
      }
      const std::uint64_t rv = acquire(slot->rv);
      const auto row = static_cast<std::uint32_t>(rv);  // a tombstone's is beyond any limit
      // Version 0, where nothing is visible yet, wraps around to the greatest.
      if (version_of(rv) - 1 >= version || row >= limit) [[unlikely]] {
        misses += place(feature, block, id);
        continue;
      }
      set_row(feature, block, id, row);
    }
    return misses;
  }

  template <bool kSpecial>
  int probe_dense(const Feature& feature, Block& block, const Piece& piece) const noexcept {
    const TableView& table = feature.table;
    int misses = 0;
    for (int id = piece.begin; id < piece.end; ++id) {
      const std::uint64_t key = block.keys[id];
      if (kSpecial && block.kinds[id] == IdKind::kPadding) {
        block.rows[id] = feature.padding;
      } else if (key >= table.base_rows) [[unlikely]] {
        block.rows[id] = feature.missing;
        ++misses;
      } else if ((acquire(table.changed[key / 64]) >> key % 64 & 1) != 0) [[unlikely]] {
        misses += place(feature, block, id);
      } else {
        const std::byte* const at = table.base + key * feature.row_stride;
        block.rows[id] = at;
        fetch_row(at, feature.row_lines);
      }
    }
    return misses;
  }

  static const Group* behind(const TableView& table, const Group* group) noexcept {
    return group + 1 == table.index + table.groups ? table.index : group + 1;
  }

  void count_keys(const Block& block, const Piece& piece) const noexcept {
    int keys = piece.end - piece.begin;
    for (int id = piece.begin; piece.padded && id < piece.end; ++id) {
      keys -= block.kinds[id] == IdKind::kPadding;
    }
    run_.keys[piece.feature] += static_cast<std::uint64_t>(keys);
  }

  // Counts missing keys, and gives them what the policy says where that is not a row known to the
  // plan.
  bool settle(const Feature& feature, Block& block, const Piece& piece, int begin, int end,
              int misses, Refusal& refusal) noexcept {
    if (run_.misses != nullptr) run_.misses[piece.feature] += static_cast<std::uint64_t>(misses);
    if (feature.missing != nullptr) return true;
    for (int id = begin; id < end; ++id) {
      if (block.rows[id] != nullptr) continue;
      if (piece.padded && block.kinds[id] == IdKind::kPadding) continue;
      if (feature.policy != MissingPolicy::kKey) {
        refusal = {Refusal::Kind::kMissing, piece.feature, piece.position + (id - piece.begin),
                   static_cast<std::int64_t>(block.keys[id])};
        return false;
      }
      block.rows[id] = substitute(feature);
    }
    return true;
  }

  // The row of kKey, looked up once per run.
  const std::byte* substitute(const Feature& feature) noexcept {
    if (substitute_of_ != &feature) {
      const std::byte* const row = find_row(feature.table, feature.missing_key, run_.version);
      substitute_ = row != nullptr ? row : feature.zeros;
      substitute_of_ = &feature;
    }
    return substitute_;
  }

  const Run& run_;
  const Feature* substitute_of_ = nullptr;
  const std::byte* substitute_ = nullptr;
};

}  // namespace
}  // namespace anabranch::store::lookup
