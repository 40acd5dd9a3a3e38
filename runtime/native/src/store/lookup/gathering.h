// Reads ids of a feature and makes keys of them.
//
// Included by the kernels alone; see kernel.h on the unnamed namespace.
#pragma once

#include "store/lookup/kernel.h"

namespace anabranch::store::lookup {
namespace {

// Where the next ids of a feature lie.
struct IdCursor {
  std::size_t feature;
  std::int64_t position;  // of the next id, counted without gaps
  std::int64_t count;     // ids of the feature
  // Fixed rows that do not lie side by side: the row and column of `position`.
  std::int64_t row;
  std::int64_t column;
};

// Converts `count` ids `step` apart; false where one is no int64, which is then number `failed`.
template <class Id>
[[gnu::always_inline]] inline bool to_keys(const Id* ids, std::int64_t step, int count,
                                           std::uint64_t add, std::uint64_t* keys,
                                           int& failed) noexcept {
  for (int i = 0; i < count; ++i, ids += step) {
    const Id id = *ids;
    if constexpr (static_cast<Id>(0.5) != 0) {
      if (!(id >= Id{-0x1p63} && id < Id{0x1p63})) {
        failed = i;
        return false;
      }
    }
    keys[i] = static_cast<std::uint64_t>(static_cast<std::int64_t>(id)) + add;
  }
  return true;
}

inline bool convert_ids(const Feature& feature, const void* ids, std::int64_t offset,
                        std::int64_t step, int count, std::uint64_t* keys, int& failed) noexcept {
  switch (feature.id_type) {
    case IdType::kInt64:
      return to_keys(static_cast<const std::int64_t*>(ids) + offset, step, count, feature.add, keys,
                     failed);
    case IdType::kInt32:
      return to_keys(static_cast<const std::int32_t*>(ids) + offset, step, count, feature.add, keys,
                     failed);
    case IdType::kFloat32:
      return to_keys(static_cast<const float*>(ids) + offset, step, count, feature.add, keys,
                     failed);
    case IdType::kFloat64:
      return to_keys(static_cast<const double*>(ids) + offset, step, count, feature.add, keys,
                     failed);
  }
  __builtin_unreachable();
}

// Reads the next `count` keys of a feature. Returns how many ids are good: `count`, or the number
// of the first that is no int64.
inline int gather(const Feature& feature, const FeatureInput& input, IdCursor& cursor, int count,
                  std::uint64_t* keys) noexcept {
  int failed = count;
  if (feature.bag != BagForm::kFixed) {
    convert_ids(feature, input.ids, cursor.position, 1, count, keys, failed);
  } else if (feature.max_length == 1) {
    convert_ids(feature, input.ids, cursor.position * input.ids_stride, input.ids_stride, count,
                keys, failed);
  } else {
    for (int done = 0; done < count;) {
      const std::int64_t left = feature.max_length - cursor.column;
      const int part = left < count - done ? static_cast<int>(left) : count - done;
      int part_failed = part;
      if (!convert_ids(feature, input.ids, cursor.row * input.ids_stride + cursor.column, 1, part,
                       keys + done, part_failed)) {
        failed = done + part_failed;
        break;
      }
      done += part;
      cursor.column += part;
      if (cursor.column == feature.max_length) {
        cursor.column = 0;
        ++cursor.row;
      }
    }
  }
  cursor.position += count;
  return failed;
}

}  // namespace
}  // namespace anabranch::store::lookup
