// A file or memfd, mapped read-only from a multiple of 2 MiB on, so that huge pages fit.
//
// Thread-safety: the object is immutable; every member may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace anabranch::store {

class SegmentMapping {
 public:
  // Maps the first `bytes` bytes (not 0) behind `fd`. Throws std::system_error.
  SegmentMapping(int fd, std::uint64_t bytes);
  ~SegmentMapping();
  SegmentMapping(const SegmentMapping&) = delete;
  SegmentMapping& operator=(const SegmentMapping&) = delete;

  std::span<const std::byte> bytes() const noexcept { return {data_, bytes_}; }

  // Faults every page in. Throws std::system_error where the file cannot be read.
  void populate() const;
  // Keeps every page in memory. Throws std::system_error where the limit forbids it.
  void lock() const;
  // Asks for huge pages; a wish.
  void collapse() const noexcept;
  // Bytes of this mapping in pages of 2 MiB, as /proc/self/smaps tells; 0 where it does not.
  std::uint64_t huge_page_bytes() const;

 private:
  std::byte* data_;
  std::uint64_t bytes_;
};

}  // namespace anabranch::store
