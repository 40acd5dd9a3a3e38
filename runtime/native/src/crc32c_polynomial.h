// Arithmetic modulo the Castagnoli polynomial, at compile time. Bits are reflected: bit 31 is x^0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace anabranch::crc32c_detail {

inline constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 reflected

// crc * x^8: the register after one zero byte.
constexpr std::uint32_t advance_one_byte(std::uint32_t crc) {
  for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? kPolynomial ^ crc >> 1 : crc >> 1;
  return crc;
}

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t power = 0x80000000; power != 0; power >>= 1) {
    if ((a & power) != 0) product ^= b;
    b = (b & 1) != 0 ? kPolynomial ^ b >> 1 : b >> 1;
  }
  return product;
}

// x^(8 * bytes).
constexpr std::uint32_t power_of_bytes(std::size_t bytes) {
  std::uint32_t result = 0x80000000;  // x^0
  for (std::uint32_t square = 0x00800000 /* x^8 */; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

// Moves a register over a fixed number of zero bytes by four table look-ups.
class ZeroBytes {
 public:
  explicit constexpr ZeroBytes(std::size_t bytes) {
    const std::uint32_t factor = power_of_bytes(bytes);
    for (std::uint32_t lane = 0; lane < 4; ++lane) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        tables_[lane][byte] = multiply(factor, byte << 8 * lane);
      }
    }
  }

  std::uint32_t advance(std::uint32_t crc) const noexcept {
    return tables_[0][crc & 0xFF] ^ tables_[1][crc >> 8 & 0xFF] ^ tables_[2][crc >> 16 & 0xFF] ^
           tables_[3][crc >> 24];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> tables_{};
};

}  // namespace anabranch::crc32c_detail
