#include "anabranch/features/hashing.h"

#include <charconv>

#include "features/hashing_farmhash.h"
#include "features/hashing_murmur3.h"
#include "features/hashing_xxh64.h"

namespace anabranch::features {

std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed) noexcept {
  return Xxh64::hash(bytes, seed);
}

std::uint64_t murmur3_x64_128_low(std::string_view bytes, std::uint32_t seed) noexcept {
  return Murmur3::hash_low(bytes, seed);
}

std::uint64_t farmhash_fingerprint64(std::string_view bytes) noexcept {
  return Farmhash::fingerprint(bytes);
}

std::string_view decimal_text(std::int64_t value, char* buffer) noexcept {
  const auto written = std::to_chars(buffer, buffer + kDecimalBytes, value);
  return {buffer, static_cast<std::size_t>(written.ptr - buffer)};
}

std::int64_t hash_key(HashFunction function, std::uint64_t seed, std::uint64_t num_buckets,
                      std::string_view bytes) noexcept {
  std::uint64_t hash = 0;
  switch (function) {
    case HashFunction::kXxh64:
      hash = xxh64(bytes, seed);
      break;
    case HashFunction::kMurmur3X64128Low:
      hash = murmur3_x64_128_low(bytes, static_cast<std::uint32_t>(seed));
      break;
    case HashFunction::kFarmhashFingerprint64:
      hash = farmhash_fingerprint64(bytes);
      break;
  }
  return static_cast<std::int64_t>(num_buckets == 0 ? hash : hash % num_buckets);
}

}  // namespace anabranch::features
