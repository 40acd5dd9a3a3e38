// Hash functions that make keys of strings and integers.
//
// Thread-safety: pure functions.
// Sources: xxHash specification 0.8 (XXH64); MurmurHash3 by Austin Appleby (x64, 128 bits; the
// first eight bytes are taken); FarmHash Fingerprint64 (farmhashna::Hash64). Golden vectors from
// the reference packages are in tests/ and docs/features.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace anabranch::features {

enum class HashFunction : std::uint8_t { kXxh64, kMurmur3X64128Low, kFarmhashFingerprint64 };

std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed) noexcept;
std::uint64_t murmur3_x64_128_low(std::string_view bytes, std::uint32_t seed) noexcept;
std::uint64_t farmhash_fingerprint64(std::string_view bytes) noexcept;

// Bytes of the longest decimal text of an int64.
inline constexpr std::size_t kDecimalBytes = 20;

// The decimal text of `value`, as tf.as_string has it, written to `buffer` of `kDecimalBytes`.
std::string_view decimal_text(std::int64_t value, char* buffer) noexcept;

// A key of `bytes`: the unsigned hash modulo `num_buckets`, or all 64 bits where that is 0.
// Seeds of murmur3 are taken modulo 2^32; farmhash_fingerprint64 takes none.
std::int64_t hash_key(HashFunction function, std::uint64_t seed, std::uint64_t num_buckets,
                      std::string_view bytes) noexcept;

}  // namespace anabranch::features
