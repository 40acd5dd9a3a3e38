#include "anabranch/aligned_buffer.h"

#include <cstring>
#include <new>

namespace anabranch {
namespace {

constexpr std::align_val_t kAlign{AlignedBuffer::kAlignment};

}  // namespace

AlignedBuffer AlignedBuffer::zeroed(std::size_t size_bytes) {
  AlignedBuffer buffer = uninitialized(size_bytes);
  std::memset(buffer.data(), 0, size_bytes);
  return buffer;
}

AlignedBuffer AlignedBuffer::uninitialized(std::size_t size_bytes) {
  return {static_cast<std::byte*>(::operator new(size_bytes, kAlign)), size_bytes};
}

void AlignedBuffer::Free::operator()(std::byte* block) const noexcept {
  ::operator delete(block, kAlign);
}

}  // namespace anabranch
