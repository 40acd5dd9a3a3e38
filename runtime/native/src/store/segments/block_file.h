// Writes a file front to back in large pieces, and keeps a checksum for each block of it.
//
// Pieces are 4 MiB at multiples of 4 MiB, from memory that starts on a page: then file systems can
// keep them in huge pages. What was appended may still be overwritten.
//
// Thread-safety: one thread at a time. All members but position() throw std::system_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "anabranch/aligned_buffer.h"
#include "store/segments/pending_file.h"

namespace anabranch::store {

class BlockFile {
 public:
  // Begins with zeros in place of the header, which no checksum covers.
  explicit BlockFile(PendingFile& file);

  std::uint64_t position() const noexcept { return flushed_ + used_; }
  void append(std::span<const std::byte> bytes);
  // Appends zeros up to the next multiple of `alignment`, a power of two.
  void pad(std::uint64_t alignment);
  // Replaces bytes that were appended.
  void overwrite(std::uint64_t at, std::span<const std::byte> bytes);

  // CRC32C of every block of segment_layout::kBlockBytes so far, the last one as far as it goes.
  std::vector<std::uint32_t> checksums();
  // Writes out what is left, and then the header.
  void finish(std::span<const std::byte> header);

 private:
  void flush();
  std::span<std::byte> pending() noexcept;

  PendingFile& file_;
  AlignedBuffer memory_;
  std::byte* buffer_;          // kPieceBytes, on a page
  std::uint64_t flushed_ = 0;  // bytes written; a multiple of kPieceBytes
  std::size_t used_ = 0;       // bytes of the buffer
  std::vector<std::uint32_t> checksums_;
  std::set<std::uint64_t> stale_;  // blocks that were overwritten after they were flushed
};

}  // namespace anabranch::store
