#include "message_column_fields.h"

#include <cstring>
#include <string>

#include "message_column_wire.h"
#include "utf8.h"

namespace anabranch::features {
namespace {

// Numbers of the message's fields.
enum : std::uint32_t {
  kType = 1,
  kRaw = 2,
  kInt64s = 3,
  kFloats = 4,
  kStrings = 5,
  kLengths = 6,
  kWeights = 7
};
constexpr char kStringsTag = kStrings << 3 | 2;

class FieldReader {
 public:
  FieldReader(const ColumnLimits& limits, ColumnStorage& storage)
      : limits_(limits), storage_(storage) {}

  ColumnFields read(std::string_view bytes);

 private:
  void take_bytes_field(WireCursor& cursor, std::uint32_t field);
  void take_int64s(std::string_view packed);
  void take_floats(std::string_view packed);
  void take_strings(WireCursor& cursor, std::string_view first);
  void take_string(std::string_view text);

  const ColumnLimits& limits_;
  ColumnStorage& storage_;
  ColumnFields fields_;
};

ColumnFields FieldReader::read(std::string_view bytes) {
  WireCursor cursor(bytes);
  while (!cursor.is_done()) {
    const Tag tag = cursor.take_tag();
    if (tag.type == WireType::kBytes) {
      take_bytes_field(cursor, tag.field);
    } else if (tag.field == kType && tag.type == WireType::kVarint) {
      fields_.type = static_cast<std::int32_t>(cursor.take_varint());
    } else if (tag.field == kInt64s && tag.type == WireType::kVarint) {
      limit_values(1, storage_.ints.size(), limits_);
      storage_.ints.push_back(static_cast<std::int64_t>(cursor.take_varint()));
    } else if (tag.field == kFloats && tag.type == WireType::kFixed32) {
      take_floats(cursor.take_fixed(sizeof(float)));
    } else {
      cursor.skip(tag);
    }
  }
  return fields_;
}

void FieldReader::take_bytes_field(WireCursor& cursor, std::uint32_t field) {
  const std::string_view value = cursor.take_bytes();
  switch (field) {
    case kRaw:
      fields_.raw = value;
      break;
    case kInt64s:
      take_int64s(value);
      break;
    case kFloats:
      take_floats(value);
      break;
    case kStrings:
      take_strings(cursor, value);
      break;
    case kLengths:
      fields_.lengths = value;
      break;
    case kWeights:
      fields_.weights = value;
      break;
    default:
      break;
  }
}

void FieldReader::take_int64s(std::string_view packed) {
  const std::size_t before = storage_.ints.size();
  const std::size_t count = count_varints(packed);
  limit_values(count, before, limits_);
  storage_.ints.resize(before + count);
  take_varints(packed, storage_.ints.data() + before);
}

void FieldReader::take_floats(std::string_view packed) {
  if (packed.size() % sizeof(float) != 0) throw MalformedMessage();
  const std::size_t before = storage_.floats.size();
  const std::size_t count = packed.size() / sizeof(float);
  limit_values(count, before, limits_);
  storage_.floats.resize(before + count);
  if (count > 0) std::memcpy(storage_.floats.data() + before, packed.data(), packed.size());
}

// Takes a string, and those of its kind that follow. All of them are looked at together: their tags
// and lengths are ASCII too.
void FieldReader::take_strings(WireCursor& cursor, std::string_view first) {
  const char* end = first.data() + first.size();
  take_string(first);
  for (std::string_view next; cursor.take_short_bytes(kStringsTag, next);) {
    take_string(next);
    end = next.data() + next.size();
  }
  const auto size = static_cast<std::size_t>(end - first.data());
  fields_.has_ascii_alone = fields_.has_ascii_alone && is_ascii({first.data(), size});
}

void FieldReader::take_string(std::string_view text) {
  limit_values(1, storage_.strings.size(), limits_);
  if (text.size() > limits_.max_string_bytes) {
    throw ColumnTooLarge("a string of more than " + std::to_string(limits_.max_string_bytes) +
                         " bytes");
  }
  storage_.strings.push_back(text);
}

}  // namespace

ColumnFields take_column_fields(std::string_view bytes, const ColumnLimits& limits,
                                ColumnStorage& storage) {
  return FieldReader(limits, storage).read(bytes);
}

void limit_values(std::size_t more, std::size_t count, const ColumnLimits& limits) {
  if (more > limits.max_values - count) {
    throw ColumnTooLarge("more than " + std::to_string(limits.max_values) + " values");
  }
}

}  // namespace anabranch::features
