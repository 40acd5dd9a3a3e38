// What a transform made of the values of one feature, row after row.
//
// Thread-safety: one thread at a time; part of a workspace, or const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace anabranch::features {

// Which lists of `MadeValues` a feature uses.
struct MadeForm {
  enum class Content : std::uint8_t { kIds, kFloats, kStrings };
  Content content = Content::kIds;
  std::size_t keys = 1;  // lists of ids
  bool weighted = false;
};

// Invariant: lists only grow, so that memory is used again; how many entries count is known beside
// them. What lists of another form hold is of an earlier feature.
struct MadeValues {
  std::vector<std::vector<std::int64_t>> ids;
  std::vector<float> floats;
  std::vector<std::string_view> strings;
  std::vector<float> weights;

  // Makes every list of `form` hold at least `count` entries.
  void reserve(const MadeForm& form, std::size_t count);
  // Copies `count` entries of every list of `form` from `other`; there is room for them.
  void copy(const MadeForm& form, const MadeValues& other, std::size_t from, std::size_t to,
            std::size_t count);
  std::size_t capacity_bytes() const noexcept;
};

}  // namespace anabranch::features
