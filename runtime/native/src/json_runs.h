// Runs of common numbers, read the fastest way that this machine has.
#pragma once

#include <type_traits>

#include "anabranch/cpu.h"
#include "json_decimal.h"
#include "json_decimal_sse.h"

namespace anabranch::json_detail {

template <class T>
using TakeNumbers = RunEnd<T> (*)(const char* at, const char* end, T* next, T* last) noexcept;

// `take_numbers` for this machine. Integers have no use for SSE: most are read in one word.
template <class T>
TakeNumbers<T> fastest_run() {
#if defined(__x86_64__)
  if constexpr (std::is_floating_point_v<T>) {
    if (cpu::has_sse41()) return take_numbers_sse41<T>;
  }
#endif
  return take_numbers<PortableDecimals, T>;
}

}  // namespace anabranch::json_detail
