#include "anabranch/aligned_buffer.h"

#include <cstring>
#include <limits>
#include <new>

namespace anabranch {
namespace {

constexpr std::size_t kMaxBytes = std::numeric_limits<std::ptrdiff_t>::max();
constexpr std::align_val_t kAlign{AlignedBuffer::kAlignment};

}  // namespace

AlignedBuffer AlignedBuffer::zeroed(std::size_t size_bytes) {
  AlignedBuffer buffer = uninitialized(size_bytes);
  std::memset(buffer.data(), 0, size_bytes);
  return buffer;
}

AlignedBuffer AlignedBuffer::uninitialized(std::size_t size_bytes) {
  // Some libraries round the size up to the alignment before they look at it, and wrap to 0.
  void* block =
      size_bytes <= kMaxBytes ? ::operator new(size_bytes, kAlign, std::nothrow) : nullptr;
  if (block == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(block), size_bytes};
}

void AlignedBuffer::Free::operator()(std::byte* block) const noexcept {
  ::operator delete(block, kAlign);
}

}  // namespace anabranch
