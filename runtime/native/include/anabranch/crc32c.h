// CRC32C (Castagnoli polynomial, RFC 3720 appendix B.4): the checksum of segment blocks, of
// counters-page records and of everything else here that must notice a flipped bit.
//
// Thread-safety: every function may be called from any thread.
// Invariants: all implementations give the same value; crc32c(b, crc32c(a)) equals the value of a
// followed by b, and crc32c of nothing is the value it was given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace anabranch {

// The value of `data`, or of everything before it followed by `data` where `crc` is the value of
// everything before it. Uses the fastest implementation that this machine has.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc = 0) noexcept;

// One way to compute it; tests and benchmarks compare them.
struct Crc32cImplementation {
  std::string_view name;
  bool supported;  // false: calling `compute` would stop the process with SIGILL
  std::uint32_t (*compute)(std::span<const std::byte> data, std::uint32_t crc) noexcept;
};

// Every implementation in this build, the fastest first; the last one, "portable", runs anywhere.
std::span<const Crc32cImplementation> crc32c_implementations() noexcept;

}  // namespace anabranch
