#include "anabranch/crc32c.h"

#include <array>

#include "anabranch/cpu.h"
#include "crc32c_hardware.h"
#include "crc32c_polynomial.h"

namespace anabranch {
namespace {

// tables[k][b]: the remainder of byte b followed by k zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_slices() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (auto& table : tables) {
      crc = crc32c_detail::advance_one_byte(crc);
      table[byte] = crc;
    }
  }
  return tables;
}

constexpr auto kSlices = make_slices();

std::uint32_t load_u32(const std::byte* at) noexcept {
  return std::to_integer<std::uint32_t>(at[0]) | std::to_integer<std::uint32_t>(at[1]) << 8 |
         std::to_integer<std::uint32_t>(at[2]) << 16 | std::to_integer<std::uint32_t>(at[3]) << 24;
}

// Slicing by 8: M. Kounavis and F. Berry, "Novel Table Lookup-Based Algorithms for
// High-Performance CRC Generation", IEEE Transactions on Computers 57(11), 2008.
std::uint32_t portable(std::span<const std::byte> data, std::uint32_t crc) noexcept {
  const std::byte* at = data.data();
  std::size_t left = data.size();
  crc = ~crc;
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint32_t low = crc ^ load_u32(at);
    const std::uint32_t high = load_u32(at + 4);
    crc = kSlices[7][low & 0xFF] ^ kSlices[6][low >> 8 & 0xFF] ^ kSlices[5][low >> 16 & 0xFF] ^
          kSlices[4][low >> 24] ^ kSlices[3][high & 0xFF] ^ kSlices[2][high >> 8 & 0xFF] ^
          kSlices[1][high >> 16 & 0xFF] ^ kSlices[0][high >> 24];
  }
  for (; left > 0; --left, ++at) {
    crc = kSlices[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

const auto& implementations() noexcept {
#if defined(ANABRANCH_CRC32C_HARDWARE)
  static const std::array<Crc32cImplementation, 2> all{{
      {crc32c_detail::kHardwareName, cpu::has_crc32c(), crc32c_detail::hardware},
      {"portable", true, portable},
  }};
#else
  static const std::array<Crc32cImplementation, 1> all{{{"portable", true, portable}}};
#endif
  return all;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc) noexcept {
  static const auto compute = implementations()[implementations()[0].supported ? 0 : 1].compute;
  return compute(data, crc);
}

std::span<const Crc32cImplementation> crc32c_implementations() noexcept {
  return implementations();
}

}  // namespace anabranch
