#include "message_column_wire.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace anabranch::features {
namespace {

constexpr int kMaxDepth = 100;  // of groups
constexpr std::uint64_t kMaxTag = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMaxSize = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kStops = 0x8080808080808080;  // clear in the last byte of a varint

static_assert(std::endian::native == std::endian::little, "the first byte is the lowest");

// Sets seven bits of each of eight bytes side by side.
std::uint64_t joined(std::uint64_t word) {
  word &= ~kStops;
  word = (word & 0x007F007F007F007F) | (word & 0x7F007F007F007F00) >> 1;
  word = (word & 0x00003FFF00003FFF) | (word & 0x3FFF00003FFF0000) >> 2;
  return (word & 0x000000000FFFFFFF) | (word & 0x0FFFFFFF00000000) >> 4;
}

}  // namespace

std::uint64_t WireCursor::take_long_varint(int most_bytes, std::uint64_t most) {
  std::uint64_t value = 0;
  for (int i = 0; i < most_bytes && at_ + i != end_; ++i) {
    const auto byte = static_cast<unsigned char>(at_[i]);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << 7 * i;
    if (byte < 0x80) {
      if (value > most) break;
      at_ += i + 1;
      return value;
    }
  }
  throw MalformedMessage();
}

std::uint64_t WireCursor::take_varint() {
  return take_varint(10, std::numeric_limits<std::uint64_t>::max());
}

Tag WireCursor::take_tag() {
  const std::uint64_t tag = take_varint(5, kMaxTag);
  const auto type = static_cast<unsigned>(tag & 7);
  const auto field = static_cast<std::uint32_t>(tag >> 3);
  if (field == 0 || type > 5) throw MalformedMessage();
  return {field, static_cast<WireType>(type)};
}

std::string_view WireCursor::take_bytes() { return take_fixed(take_varint(5, kMaxSize)); }

std::string_view WireCursor::take_fixed(std::size_t size) {
  if (size > static_cast<std::size_t>(end_ - at_)) throw MalformedMessage();
  const std::string_view bytes(at_, size);
  at_ += size;
  return bytes;
}

void WireCursor::skip(Tag tag) {
  std::array<std::uint32_t, kMaxDepth> groups;  // fields of the open ones
  std::size_t depth = 0;
  for (;;) {
    switch (tag.type) {
      case WireType::kVarint:
        take_varint();
        break;
      case WireType::kFixed64:
        take_fixed(8);
        break;
      case WireType::kBytes:
        take_bytes();
        break;
      case WireType::kFixed32:
        take_fixed(4);
        break;
      case WireType::kGroup:
        if (depth == groups.size()) throw MalformedMessage();
        groups[depth++] = tag.field;
        break;
      case WireType::kGroupEnd:
        if (depth == 0 || groups[--depth] != tag.field) throw MalformedMessage();
        break;
    }
    if (depth == 0) return;
    tag = take_tag();
  }
}

std::size_t count_varints(std::string_view packed) noexcept {
  std::size_t count = 0;
  std::size_t at = 0;
  for (; packed.size() - at >= 8; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, packed.data() + at, sizeof word);
    count += static_cast<std::size_t>(std::popcount(~word & kStops));
  }
  for (; at < packed.size(); ++at) count += static_cast<unsigned char>(packed[at]) < 0x80;
  return count;
}

void take_varints(std::string_view packed, std::int64_t* values) {
  std::size_t at = 0;
  while (packed.size() - at >= 8) {
    std::uint64_t word;
    std::memcpy(&word, packed.data() + at, sizeof word);
    const std::uint64_t stops = ~word & kStops;
    if (stops == 0) {
      WireCursor rest(packed.substr(at + 8, 2));
      const std::uint64_t high = rest.take_varint();
      *values++ = static_cast<std::int64_t>(joined(word) | high << 56);
      at += high > 0x7F || packed[at + 8] < 0 ? 10 : 9;
      continue;
    }
    const int bits = std::countr_zero(stops) + 1;
    *values++ = static_cast<std::int64_t>(joined(word << (64 - bits) >> (64 - bits)));
    at += static_cast<std::size_t>(bits / 8);
  }
  for (WireCursor last(packed.substr(at)); !last.is_done();) {
    *values++ = static_cast<std::int64_t>(last.take_varint());
  }
}

}  // namespace anabranch::features
