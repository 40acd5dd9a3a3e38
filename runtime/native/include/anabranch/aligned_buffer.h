// One block of memory that starts on a 64-byte boundary.
//
// Thread-safety: none; one owner at a time, and moving is how ownership changes hands.
// Invariants: `data()` is a multiple of `kAlignment`, also when the block is empty; `size_bytes()`
// is exactly what was asked for; the block is freed once, by the last owner.
// Units: bytes.
#pragma once

#include <cstddef>
#include <memory>

namespace anabranch {

class AlignedBuffer {
 public:
  // A cache line, and the widest vector register that any kernel here loads.
  static constexpr std::size_t kAlignment = 64;

  // A block of zeros. Every page of it has been touched, so no later write faults.
  // Throws std::bad_alloc when the memory is not to be had.
  static AlignedBuffer zeroed(std::size_t size_bytes);

  // A block whose content is undefined, for a caller that is about to write all of it.
  // Throws std::bad_alloc when the memory is not to be had.
  static AlignedBuffer uninitialized(std::size_t size_bytes);

  std::byte* data() const noexcept { return block_.get(); }
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* block) const noexcept;
  };

  AlignedBuffer(std::byte* block, std::size_t size_bytes) noexcept
      : block_(block), size_bytes_(size_bytes) {}

  std::unique_ptr<std::byte, Free> block_;
  std::size_t size_bytes_;
};

}  // namespace anabranch
