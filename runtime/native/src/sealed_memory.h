// Anonymous shared memory of a fixed size, zeroed: its creator writes it, others can only read it.
//
// Thread-safety: the object is immutable; what is in the memory is its users' affair.
#pragma once

#include <cstddef>
#include <span>

namespace anabranch {

class SealedMemory {
 public:
  // A memfd that can neither shrink nor grow, nor be mapped for writing by anyone else.
  // Throws std::system_error.
  SealedMemory(const char* name, std::size_t size_bytes);
  ~SealedMemory();
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  int fd() const noexcept { return fd_; }
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  int fd_;
  std::span<std::byte> bytes_;
};

}  // namespace anabranch
