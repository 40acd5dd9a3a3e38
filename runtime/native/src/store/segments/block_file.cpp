#include "store/segments/block_file.h"

#include <algorithm>
#include <cstring>

#include "anabranch/crc32c.h"
#include "store/segments/segment_layout.h"

namespace anabranch::store {
namespace {

using namespace segment_layout;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::size_t kPageBytes = 4096;
static_assert(kPieceBytes % kBlockBytes == 0);

// Checksum of block `number`, whose bytes are `block`; the header of the file is left out.
std::uint32_t checksum(std::uint64_t number, std::span<const std::byte> block) {
  return crc32c(number == 0 ? block.subspan(sizeof(Header)) : block);
}

}  // namespace

BlockFile::BlockFile(PendingFile& file)
    : file_(file), memory_(AlignedBuffer::uninitialized(kPieceBytes + kPageBytes)) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  buffer_ = memory_.data() + (round_up(address, kPageBytes) - address);
  std::memset(buffer_, 0, sizeof(Header));
  used_ = sizeof(Header);
}

std::span<std::byte> BlockFile::pending() noexcept { return {buffer_, used_}; }

void BlockFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kPieceBytes - used_);
    std::memcpy(buffer_ + used_, bytes.data(), count);
    used_ += count;
    bytes = bytes.subspan(count);
    if (used_ == kPieceBytes) flush();
  }
}

void BlockFile::pad(std::uint64_t alignment) {
  std::uint64_t left = round_up(position(), alignment) - position();
  while (left > 0) {
    const std::size_t count = std::min<std::uint64_t>(left, kPieceBytes - used_);
    std::memset(buffer_ + used_, 0, count);
    used_ += count;
    left -= count;
    if (used_ == kPieceBytes) flush();
  }
}

void BlockFile::overwrite(std::uint64_t at, std::span<const std::byte> bytes) {
  if (at < flushed_) {
    const std::size_t count = std::min<std::uint64_t>(bytes.size(), flushed_ - at);
    file_.write_at(at, bytes.first(count));
    for (std::uint64_t block = at / kBlockBytes; block * kBlockBytes < at + count; ++block) {
      stale_.insert(block);
    }
    at += count;
    bytes = bytes.subspan(count);
  }
  if (!bytes.empty()) std::memcpy(buffer_ + (at - flushed_), bytes.data(), bytes.size());
}

std::vector<std::uint32_t> BlockFile::checksums() {
  const AlignedBuffer block = AlignedBuffer::uninitialized(stale_.empty() ? 0 : kBlockBytes);
  for (const std::uint64_t number : stale_) {
    file_.read_at(number * kBlockBytes, {block.data(), kBlockBytes});
    checksums_[number] = checksum(number, {block.data(), kBlockBytes});
  }
  stale_.clear();
  std::vector<std::uint32_t> all = checksums_;
  const auto rest = pending();
  for (std::size_t at = 0; at < rest.size(); at += kBlockBytes) {
    all.push_back(checksum(all.size(), rest.subspan(at, std::min(kBlockBytes, rest.size() - at))));
  }
  return all;
}

void BlockFile::flush() {
  for (std::size_t at = 0; at < kPieceBytes; at += kBlockBytes) {
    checksums_.push_back(checksum(checksums_.size(), {buffer_ + at, kBlockBytes}));
  }
  file_.write_at(flushed_, pending());
  flushed_ += used_;
  used_ = 0;
}

void BlockFile::finish(std::span<const std::byte> header) {
  file_.write_at(flushed_, pending());
  flushed_ += used_;
  used_ = 0;
  file_.write_at(0, header);
}

}  // namespace anabranch::store
