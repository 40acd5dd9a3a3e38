#include "crc32c_hardware.h"

#if defined(ANABRANCH_CRC32C_HARDWARE)

#include "crc32c_polynomial.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define ANABRANCH_TARGET __attribute__((target("sse4.2")))
#else
#include <arm_acle.h>
#define ANABRANCH_TARGET __attribute__((target("+crc")))
#endif

namespace anabranch::crc32c_detail {
namespace {

ANABRANCH_TARGET std::uint32_t step_byte(std::uint32_t crc, const std::byte* at) noexcept {
  const auto value = static_cast<std::uint8_t>(*at);
#if defined(__x86_64__)
  return _mm_crc32_u8(crc, value);
#else
  return __crc32cb(crc, value);
#endif
}

ANABRANCH_TARGET std::uint32_t step_word(std::uint32_t crc, const std::byte* at) noexcept {
  std::uint64_t word;
  __builtin_memcpy(&word, at, sizeof word);
#if defined(__x86_64__)
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
#else
  return __crc32cd(crc, word);
#endif
}

// The instruction takes one word a cycle but answers three cycles later, so three neighbouring
// stripes are folded at once and their registers joined afterwards: V. Gopal et al., "Fast CRC
// Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011.
template <std::size_t kStripeBytes>
ANABRANCH_TARGET std::uint32_t three_stripes(std::uint32_t crc, const std::byte*& at,
                                             const std::byte* end) noexcept {
  static constexpr ZeroBytes kStripe{kStripeBytes};
  while (static_cast<std::size_t>(end - at) >= 3 * kStripeBytes) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (const std::byte* stripe_end = at + kStripeBytes; at != stripe_end; at += 8) {
      crc = step_word(crc, at);
      second = step_word(second, at + kStripeBytes);
      third = step_word(third, at + 2 * kStripeBytes);
    }
    crc = kStripe.advance(kStripe.advance(crc) ^ second) ^ third;
    at += 2 * kStripeBytes;
  }
  return crc;
}

}  // namespace

ANABRANCH_TARGET std::uint32_t hardware(std::span<const std::byte> data,
                                        std::uint32_t crc) noexcept {
  const std::byte* at = data.data();
  const std::byte* const end = at + data.size();
  crc = three_stripes<4096>(~crc, at, end);
  crc = three_stripes<256>(crc, at, end);
  for (; end - at >= 8; at += 8) crc = step_word(crc, at);
  for (; at != end; ++at) crc = step_byte(crc, at);
  return ~crc;
}

}  // namespace anabranch::crc32c_detail

#endif
