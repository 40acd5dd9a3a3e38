#include "anabranch/cpu.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace anabranch::cpu {

#if defined(__x86_64__)

bool has_crc32c() noexcept { return __builtin_cpu_supports("sse4.2"); }

bool has_sse41() noexcept { return __builtin_cpu_supports("sse4.1"); }

std::string_view isa() noexcept {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "avx512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
  return __builtin_cpu_supports("sse4.2") ? "sse4.2" : "portable";
}

#elif defined(__aarch64__) && defined(__linux__)

bool has_crc32c() noexcept {
  constexpr unsigned long kHwcapCrc32 = 1UL << 7;  // HWCAP_CRC32 of the Linux arm64 ABI
  return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0;
}

bool has_sse41() noexcept { return false; }

std::string_view isa() noexcept { return "neon"; }

#else

bool has_crc32c() noexcept { return false; }

bool has_sse41() noexcept { return false; }

std::string_view isa() noexcept { return "portable"; }

#endif

}  // namespace anabranch::cpu
