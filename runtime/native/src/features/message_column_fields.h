// The fields of a serialised anabranch.v1.Column, before anybody asks what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "anabranch/features/raw_column.h"

namespace anabranch::features {

// Values of the message's Type.
enum : std::int32_t { kNoType = 0, kTypeInt64 = 1, kTypeFloat32 = 2, kTypeString = 3 };

// Fields that are not lists of values; views of the message.
struct ColumnFields {
  std::int32_t type = kNoType;
  std::string_view raw;
  std::string_view lengths;
  std::string_view weights;
  bool has_ascii_alone = true;  // in its strings
};

// Reads all fields; `int64s`, `floats` and `strings` are appended to those of `storage`.
// Throws MalformedMessage and ColumnTooLarge.
ColumnFields take_column_fields(std::string_view bytes, const ColumnLimits& limits,
                                ColumnStorage& storage);

// Throws ColumnTooLarge where `more` values beside `count` are too many.
void limit_values(std::size_t more, std::size_t count, const ColumnLimits& limits);

}  // namespace anabranch::features
