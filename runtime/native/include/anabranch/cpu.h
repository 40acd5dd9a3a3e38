// What the processor under this process can do, asked once.
//
// Thread-safety: every function may be called from any thread.
// Invariant: the answers never change while the process lives.
#pragma once

#include <string_view>

namespace anabranch::cpu {

// CRC32C instructions: SSE4.2 on x86-64, the CRC extension on aarch64.
bool has_crc32c() noexcept;

// SSE4.1, on x86-64 alone.
bool has_sse41() noexcept;

// The widest instruction set that kernels of this build may use on this machine: "avx512" (F, BW,
// DQ and VL together), "avx2" (with FMA), "sse4.2", "neon" or "portable". The value of the label
// `isa` of the metric `anabranch_build_info`.
std::string_view isa() noexcept;

}  // namespace anabranch::cpu
