// Every range of memory that the driver gave out: what is live, what was freed, and how much of it.
//
// New memory is poisoned, freed memory is poisoned again and kept for a while, so that whoever uses
// it is found out instead of reading what the next owner wrote. Behind each range lies a guard that
// tells whether somebody wrote past its end.
//
// Thread-safety: the driver's lock is held. The bytes themselves are the callers'.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "cuda_header.h"

namespace anabranch::cuda_stub {

enum class MemoryKind { kDevice, kDevicePool, kPinned, kPinnedPool, kManaged, kRegistered };
inline constexpr std::size_t kMemoryKinds = 6;

// Whether memory of that kind takes from what a device has.
constexpr bool on_device(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kDevicePool ||
         kind == MemoryKind::kManaged;
}

struct Allocation {
  std::byte* begin;
  std::size_t bytes;
  MemoryKind kind;
  int device;
  CUmemoryPool pool;  // null where it came from none
  bool live;
};

enum class Access {
  kForeign,  // nothing that the driver knows: memory of the process
  kLive,
  kIllegal,  // freed, or reaches out of its allocation
};

enum class Released { kFreed, kUnknown, kOverrun };

class AllocationTable {
 public:
  static constexpr std::size_t kGuardBytes = 256;
  // Freed memory beyond that is really given back, the oldest first.
  static constexpr std::size_t kQuarantineBytes = std::size_t{256} << 20;

  // Returns null where the machine has no more memory.
  const Allocation* allocate(MemoryKind kind, std::size_t bytes, int device, CUmemoryPool pool);
  // Takes note of memory of the process; null where it overlaps memory that is known.
  const Allocation* adopt(void* begin, std::size_t bytes, int device);
  // Frees the live allocation that begins there. kOverrun: freed, and its guard had been written.
  Released release(void* begin);

  // Returns the live or freed allocation around `address`, its guard included; null for others.
  const Allocation* find(const void* address) const;
  Access access(const void* begin, std::size_t bytes) const;

  std::size_t live_bytes(MemoryKind kind) const { return live_[static_cast<std::size_t>(kind)]; }
  std::size_t live_bytes_on(int device) const;

 private:
  void bound_quarantine();

  std::map<std::uintptr_t, Allocation> by_address_;
  std::deque<std::uintptr_t> quarantine_;
  std::size_t quarantined_bytes_ = 0;
  std::array<std::size_t, kMemoryKinds> live_{};
  std::map<int, std::size_t> live_on_;
};

}  // namespace anabranch::cuda_stub
