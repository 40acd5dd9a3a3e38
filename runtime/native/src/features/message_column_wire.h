// The wire format of protobuf, read as google.protobuf's parsers read it.
//
// Source: protobuf.dev/programming-guides/encoding, and for what the text leaves open (lengths of
// varints, limits) upb's decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

namespace anabranch::features {

// Bytes that are no message.
class MalformedMessage : public std::exception {
 public:
  const char* what() const noexcept override { return "malformed message"; }
};

enum class WireType : std::uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kGroupEnd = 4,
  kFixed32 = 5
};

struct Tag {
  std::uint32_t field;
  WireType type;
};

// A place in a message. All but `is_done` throw MalformedMessage.
class WireCursor {
 public:
  explicit WireCursor(std::string_view bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool is_done() const noexcept { return at_ == end_; }
  Tag take_tag();
  std::uint64_t take_varint();
  std::string_view take_bytes();
  std::string_view take_fixed(std::size_t size);

  // Takes a field of fewer than 128 bytes whose tag is the one byte `tag`; false where something
  // else comes next, which is left.
  bool take_short_bytes(char tag, std::string_view& bytes) noexcept {
    if (end_ - at_ < 2 || at_[0] != tag) return false;
    const auto size = static_cast<unsigned char>(at_[1]);
    if (size >= 0x80 || size > end_ - at_ - 2) return false;
    bytes = {at_ + 2, size};
    at_ += 2 + size;
    return true;
  }

  // Passes the value of a field that nobody knows, groups inside groups without recursion.
  void skip(Tag tag);

 private:
  // At most so many bytes, and at most so large.
  std::uint64_t take_varint(int most_bytes, std::uint64_t most) {
    if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) {
      return static_cast<unsigned char>(*at_++);
    }
    return take_long_varint(most_bytes, most);
  }
  std::uint64_t take_long_varint(int most_bytes, std::uint64_t most);

  const char* at_;
  const char* end_;
};

// Varints one behind another: how many there are, and what they say. `packed` must end with one.
std::size_t count_varints(std::string_view packed) noexcept;
void take_varints(std::string_view packed, std::int64_t* values);

}  // namespace anabranch::features
