#include "anabranch/crc32c.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "check.h"

using anabranch::crc32c;

namespace {

using Bytes = std::vector<std::byte>;

Bytes filled(std::size_t size, auto&& value_at) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(value_at(i));
  return bytes;
}

Bytes random_bytes(std::size_t size, std::mt19937_64& random) {
  return filled(size, [&](std::size_t) { return random(); });
}

struct Vector {
  Bytes data;
  std::uint32_t crc;
};

// RFC 3720, appendix B.4, and the customary check value.
std::vector<Vector> known_vectors() {
  const unsigned char scsi_read[] = {0x01, 0xC0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
                                     0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  return {
      {filled(32, [](std::size_t) { return 0x00; }), 0x8A9136AA},
      {filled(32, [](std::size_t) { return 0xFF; }), 0x62A8AB43},
      {filled(32, [](std::size_t i) { return i; }), 0x46DD794E},
      {filled(32, [](std::size_t i) { return 31 - i; }), 0x113FDB5C},
      {filled(48, [&](std::size_t i) { return scsi_read[i]; }), 0xD9963A56},
      {filled(9, [](std::size_t i) { return '1' + i; }), 0xE3069283},
      {{}, 0},
  };
}

}  // namespace

TEST(every_implementation_gives_the_known_values) {
  for (const auto& implementation : anabranch::crc32c_implementations()) {
    if (!implementation.supported) continue;
    for (const auto& [data, crc] : known_vectors()) CHECK_EQ(implementation.compute(data, 0), crc);
  }
}

TEST(implementations_agree_at_any_length_and_alignment) {
  std::mt19937_64 random(1);
  const Bytes data = random_bytes(40000, random);
  const auto all = anabranch::crc32c_implementations();
  const auto portable = all.back().compute;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t begin = random() % 64;
    // Lengths around the stripes as often as any.
    const std::size_t around[] = {0, 768, 12288, 13056, 24576, 36864};
    const std::size_t length =
        round % 2 == 0 ? random() % 39000 : around[random() % 6] + random() % 24;
    const auto part = std::span(data).subspan(begin, length);
    const auto seed = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = portable(part, seed);
    CHECK_EQ(crc32c(part, seed), expected);
    for (const auto& implementation : all) {
      if (implementation.supported) CHECK_EQ(implementation.compute(part, seed), expected);
    }
  }
}

TEST(parts_give_the_value_of_the_whole) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 500; ++round) {
    const Bytes data = random_bytes(random() % 30000, random);
    std::uint32_t crc = 0;
    for (std::size_t at = 0; at < data.size();) {
      const std::size_t size = std::min<std::size_t>(data.size() - at, 1 + random() % 9000);
      crc = crc32c(std::span(data).subspan(at, size), crc);
      at += size;
    }
    CHECK_EQ(crc, crc32c(data));
  }
}

TEST(a_flipped_bit_is_noticed) {
  std::mt19937_64 random(3);
  Bytes data = random_bytes(5000, random);
  const std::uint32_t crc = crc32c(data);
  for (int round = 0; round < 2000; ++round) {
    std::byte& victim = data[random() % data.size()];
    const auto flip = static_cast<std::byte>(1 << random() % 8);
    victim ^= flip;
    CHECK(crc32c(data) != crc);
    victim ^= flip;
  }
}

TEST(the_portable_implementation_is_always_there) {
  const auto all = anabranch::crc32c_implementations();
  CHECK_EQ(all.back().name, "portable");
  CHECK(all.back().supported);
}

int main() { return anabranch::testing::run_tests(); }
