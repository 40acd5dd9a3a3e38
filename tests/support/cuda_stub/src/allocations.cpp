#include "allocations.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace anabranch::cuda_stub {
namespace {

constexpr int kFresh = 0xCD;
constexpr int kFreed = 0xDD;
constexpr auto kGuard = std::byte{0xFD};
constexpr std::size_t kAlignment = 256;

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::size_t guard_of(const Allocation& allocation) {
  return allocation.kind == MemoryKind::kRegistered ? 0 : AllocationTable::kGuardBytes;
}

}  // namespace

const Allocation* AllocationTable::allocate(MemoryKind kind, std::size_t bytes, int device,
                                            CUmemoryPool pool) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const std::size_t whole = (bytes + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* begin = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
  if (begin == nullptr) return nullptr;
  std::memset(begin, kFresh, bytes);
  std::fill_n(begin + bytes, kGuardBytes, kGuard);
  live_[static_cast<std::size_t>(kind)] += bytes;
  if (on_device(kind)) live_on_[device] += bytes;
  const Allocation allocation{begin, bytes, kind, device, pool, true};
  return &by_address_.insert_or_assign(address_of(begin), allocation).first->second;
}

const Allocation* AllocationTable::adopt(void* begin, std::size_t bytes, int device) {
  const auto behind = by_address_.lower_bound(address_of(begin));
  if (behind != by_address_.end() && behind->first < address_of(begin) + bytes) return nullptr;
  if (find(begin) != nullptr) return nullptr;
  live_[static_cast<std::size_t>(MemoryKind::kRegistered)] += bytes;
  const Allocation allocation{
      static_cast<std::byte*>(begin), bytes, MemoryKind::kRegistered, device, nullptr, true};
  return &by_address_.insert_or_assign(address_of(begin), allocation).first->second;
}

Released AllocationTable::release(void* begin) {
  const auto found = by_address_.find(address_of(begin));
  if (found == by_address_.end() || !found->second.live) return Released::kUnknown;
  Allocation& allocation = found->second;
  live_[static_cast<std::size_t>(allocation.kind)] -= allocation.bytes;
  if (on_device(allocation.kind)) live_on_[allocation.device] -= allocation.bytes;
  if (allocation.kind == MemoryKind::kRegistered) {
    by_address_.erase(found);
    return Released::kFreed;
  }
  const std::byte* guard = allocation.begin + allocation.bytes;
  const bool intact =
      std::all_of(guard, guard + kGuardBytes, [](std::byte value) { return value == kGuard; });
  allocation.live = false;
  std::memset(allocation.begin, kFreed, allocation.bytes);
  quarantine_.push_back(found->first);
  quarantined_bytes_ += allocation.bytes;
  bound_quarantine();
  return intact ? Released::kFreed : Released::kOverrun;
}

const Allocation* AllocationTable::find(const void* address) const {
  auto found = by_address_.upper_bound(address_of(address));
  if (found == by_address_.begin()) return nullptr;
  const Allocation& allocation = (--found)->second;
  const std::size_t reach = allocation.bytes + guard_of(allocation);
  return address_of(address) - found->first < reach ? &allocation : nullptr;
}

Access AllocationTable::access(const void* begin, std::size_t bytes) const {
  const Allocation* allocation = find(begin);
  if (allocation == nullptr) return Access::kForeign;
  const std::size_t offset = address_of(begin) - address_of(allocation->begin);
  const bool inside = offset <= allocation->bytes && bytes <= allocation->bytes - offset;
  return allocation->live && inside ? Access::kLive : Access::kIllegal;
}

std::size_t AllocationTable::live_bytes_on(int device) const {
  const auto found = live_on_.find(device);
  return found == live_on_.end() ? 0 : found->second;
}

void AllocationTable::bound_quarantine() {
  while (quarantined_bytes_ > kQuarantineBytes && quarantine_.size() > 1) {
    const auto oldest = by_address_.find(quarantine_.front());
    quarantine_.pop_front();
    quarantined_bytes_ -= oldest->second.bytes;
    std::free(oldest->second.begin);
    by_address_.erase(oldest);
  }
}

}  // namespace anabranch::cuda_stub
