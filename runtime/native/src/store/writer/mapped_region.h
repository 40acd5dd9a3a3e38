// A view of shared memory at an address that huge pages can serve.
//
// Thread-safety: the object is immutable; what is in the memory is its users' affair.
// Units: bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sealed_memory.h"

namespace anabranch::store {

inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

class MappedRegion {
 public:
  // The creator's own view: a second one of the pages that `memory` mapped, since nobody can map
  // them for writing any more. Outlives `memory`. Throws std::system_error.
  static std::shared_ptr<const MappedRegion> writable(const SealedMemory& memory);
  // A view of the `size` bytes behind `fd`. Throws std::system_error.
  static std::shared_ptr<const MappedRegion> read_only(int fd, std::size_t size);

  explicit MappedRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~MappedRegion();
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  std::byte* data() const noexcept { return bytes_.data(); }
  std::size_t size() const noexcept { return bytes_.size(); }

  // Faults in the pages that exist; leaves holes alone, which a mere read would fill with zeros.
  void populate(int fd) const noexcept;
  // Share of what this view has touched that lies in huge pages; 0 where the kernel does not tell.
  double huge_page_ratio() const;

 private:
  std::span<std::byte> bytes_;
};

// Makes huge pages of the whole ones in `memory`; whether it could. Copies what is in them.
bool make_huge(std::span<std::byte> memory) noexcept;

// The same of memory that is all zeros yet, before it is filled, and with nothing to copy: a byte
// in each is enough for the kernel to make one.
bool begin_huge(std::span<std::byte> memory) noexcept;

// Bytes in [begin, end) of the memory behind `fd` that are no hole.
std::uint64_t touched_bytes(int fd, std::uint64_t begin, std::uint64_t end) noexcept;

}  // namespace anabranch::store
