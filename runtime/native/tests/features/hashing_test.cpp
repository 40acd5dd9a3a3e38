#include "anabranch/features/hashing.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "hash_vectors.h"

using namespace anabranch::features;

namespace {

std::string text_of(std::int64_t value) {
  char buffer[kDecimalBytes];
  return std::string(decimal_text(value, buffer));
}

}  // namespace

TEST(vectors_of_the_reference_packages) {
  for (const HashVector& vector : kHashVectors) {
    CHECK_EQ(hash_key(vector.function, vector.seed, 0, vector.text),
             static_cast<std::int64_t>(vector.hash));
    CHECK_EQ(hash_key(vector.function, vector.seed, 1000, vector.text),
             static_cast<std::int64_t>(vector.hash % 1000));
  }
}

// Every length up to several blocks, in memory that ends with the text: what reads beyond it is
// seen by AddressSanitizer.
TEST(every_length_reads_its_own_bytes) {
  std::uint64_t all = 0;
  for (std::size_t length = 0; length <= 300; ++length) {
    const std::vector<char> bytes(length, 'x');
    const std::string_view text(bytes.data(), length);
    for (const auto function : {HashFunction::kXxh64, HashFunction::kMurmur3X64128Low,
                                HashFunction::kFarmhashFingerprint64}) {
      all ^= static_cast<std::uint64_t>(hash_key(function, 7, 0, text));
    }
  }
  CHECK(all != 0);
}

TEST(seeds_of_murmur3_are_taken_modulo_2_32) {
  const auto key = [](std::uint64_t seed) {
    return hash_key(HashFunction::kMurmur3X64128Low, seed, 0, "red");
  };
  CHECK_EQ(key((std::uint64_t{1} << 32) + 5), key(5));
  CHECK(key(5) != key(6));
}

TEST(farmhash_takes_no_seed) {
  CHECK_EQ(hash_key(HashFunction::kFarmhashFingerprint64, 5, 0, "red"),
           hash_key(HashFunction::kFarmhashFingerprint64, 0, 0, "red"));
}

TEST(integers_become_decimal_text) {
  CHECK_EQ(text_of(0), "0");
  CHECK_EQ(text_of(-17), "-17");
  CHECK_EQ(text_of(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  CHECK_EQ(text_of(std::numeric_limits<std::int64_t>::max()), "9223372036854775807");
}

int main() { return anabranch::testing::run_tests(); }
