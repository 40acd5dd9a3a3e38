// Segments as bytes that tests change, in memory files that they map.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "anabranch/crc32c.h"
#include "samples.h"
#include "store/segments/segment_layout.h"

namespace anabranch::testing {

using Bytes = std::vector<std::byte>;

// A hashed table with both side keys, a dense one, an empty one; of different types.
inline Bytes sample_segment() {
  using namespace store;
  const Folder folder;
  SegmentWriter writer(folder.path(), "a.seg", 7);
  writer.begin_table("items", {RowType::kF32, 4}, KeyKind::kHashed, 40, Duplicates::kRefuse);
  std::vector<std::uint64_t> keys = {kEmptyKey, kDeadKey};
  while (keys.size() < 40) keys.push_back(keys.size() * 977);
  writer.add(keys, std::vector<float>(160, 0.5F));
  writer.begin_table("hours", {RowType::kInt8, 8}, KeyKind::kDenseId, 24, Duplicates::kRefuse);
  writer.add({}, std::vector<float>(24 * 8, 2.0F));
  writer.begin_table("none", {RowType::kF16, 3}, KeyKind::kHashed, 0, Duplicates::kRefuse);
  writer.finish();
  return bytes_of_file(folder.path("a.seg"));
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <class T>
void set_value(std::span<std::byte> bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Offset of a field of table `table`'s record.
inline std::size_t record_offset(std::span<const std::byte> bytes, std::size_t table) {
  using namespace store::segment_layout;
  return value_at<Header>(bytes, 0).off_directory + table * sizeof(Record);
}

// Makes every checksum right again, as far as the header's numbers make sense: for faults that
// checksums do not show.
inline void reseal(std::span<std::byte> bytes) {
  using namespace store::segment_layout;
  auto header = value_at<Header>(bytes, 0);
  const std::size_t end = bytes.size() - sizeof(Footer);
  if (header.off_directory <= end && header.directory_bytes <= end - header.off_directory) {
    header.directory_crc = crc32c(bytes.subspan(header.off_directory, header.directory_bytes));
  }
  if (header.off_checksums <= end &&
      end - header.off_checksums == 4 * block_count(header.off_checksums)) {
    for (std::uint64_t i = 0; i < block_count(header.off_checksums); ++i) {
      const std::uint64_t begin = i == 0 ? sizeof(Header) : i * kBlockBytes;
      const std::uint64_t stop = std::min((i + 1) * kBlockBytes, header.off_checksums);
      if (begin > stop) continue;
      set_value(bytes, header.off_checksums + 4 * i, crc32c(bytes.subspan(begin, stop - begin)));
    }
    header.checksums_crc = crc32c(bytes.subspan(header.off_checksums, end - header.off_checksums));
  }
  header.crc = crc32c(bytes_of(header).first(offsetof(Header, crc)));
  set_value(bytes, 0, header);
  Footer footer;
  std::memcpy(footer.magic, kFooterMagic, sizeof kFooterMagic);
  footer.header_crc = header.crc;
  footer.checksums_crc = header.checksums_crc;
  set_value(bytes, end, footer);
}

// A memory file with bytes that may be changed between mappings.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes)
      : fd_(::memfd_create("segment", MFD_CLOEXEC)) {
    write(0, bytes);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  void write(std::size_t offset, std::span<const std::byte> bytes) {
    const auto written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written != static_cast<ssize_t>(bytes.size())) throw std::runtime_error("memfd");
  }
  void resize(std::size_t bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("memfd");
  }

 private:
  int fd_;
};

// Maps the bytes and does everything that reads them.
inline void read_all(int fd) {
  const auto segment = store::Segment::map(fd);
  for (std::size_t table = 0; table < segment->tables().size(); ++table) segment->probes(table);
  segment->verify();
}

}  // namespace anabranch::testing
