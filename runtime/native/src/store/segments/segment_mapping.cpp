#include "store/segments/segment_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

#include "store/segments/segment_layout.h"

namespace anabranch::store {
namespace {

using segment_layout::kHugePage;
using segment_layout::round_up;

// Newer than some C libraries: Linux 5.14 and 6.1.
constexpr int kMadvPopulateRead = 22;
constexpr int kMadvCollapse = 25;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SegmentMapping::SegmentMapping(int fd, std::uint64_t bytes) : bytes_(bytes) {
  // Room to find a multiple of a huge page in; what is not used of it is given back.
  const std::uint64_t room = round_up(bytes, kHugePage) + kHugePage;
  void* reserved =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw_errno("cannot map a segment");
  auto* const begin = static_cast<std::byte*>(reserved);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved);
  data_ = begin + (round_up(address, kHugePage) - address);
  if (::mmap(data_, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(begin, room);
    errno = error;
    throw_errno("cannot map a segment");
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const end = data_ + round_up(bytes, page);
  if (data_ != begin) ::munmap(begin, static_cast<std::size_t>(data_ - begin));
  ::munmap(end, static_cast<std::size_t>(begin + room - end));
}

SegmentMapping::~SegmentMapping() { ::munmap(data_, bytes_); }

void SegmentMapping::populate() const {
  if (::madvise(data_, bytes_, kMadvPopulateRead) == 0) return;
  if (errno != EINVAL) throw_errno("cannot read a segment");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < bytes_; at += page) {
    static_cast<void>(*static_cast<const volatile std::byte*>(data_ + at));
  }
}

void SegmentMapping::lock() const {
  if (::mlock(data_, bytes_) != 0) {
    throw_errno("cannot lock a segment in memory: raise the limit (ulimit -l) or populate it only");
  }
}

void SegmentMapping::collapse() const noexcept {
  ::madvise(data_, bytes_ / kHugePage * kHugePage, kMadvCollapse);
}

std::uint64_t SegmentMapping::huge_page_bytes() const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool mine = false;
  std::uint64_t total = 0;
  while (std::getline(smaps, line)) {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
      mine = from < begin + bytes_ && to > begin;
    } else if (mine && (std::sscanf(line.c_str(), "FilePmdMapped: %" SCNu64, &kib) == 1 ||
                        std::sscanf(line.c_str(), "ShmemPmdMapped: %" SCNu64, &kib) == 1)) {
      total += kib << 10;
    }
  }
  return std::min(total, bytes_);
}

}  // namespace anabranch::store
