#include "store/writer/mapped_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

namespace anabranch::store {
namespace {

// Known to kernels before they were known to every C library.
constexpr int kPopulateRead = 22;
constexpr int kCollapse = 25;

[[noreturn]] void fail() {
  throw std::system_error(errno, std::generic_category(), "cannot map a generation");
}

// An address range at a multiple of a huge page that nothing else has; `map` puts a mapping there.
template <class Map>
std::span<std::byte> map_aligned(std::size_t size, Map&& map) {
  const std::size_t room = size + kHugePage;
  void* reserved =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail();
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uintptr_t at = round_up(begin, kHugePage);
  const std::uintptr_t end = at + round_up(size, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  if (map(reinterpret_cast<void*>(at)) == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, room);
    errno = error;
    fail();
  }
  if (at > begin) ::munmap(reserved, at - begin);
  if (begin + room > end) ::munmap(reinterpret_cast<void*>(end), begin + room - end);
  return {reinterpret_cast<std::byte*>(at), size};
}

// Calls `visit(begin, end)` for each piece of [begin, end) that is no hole.
template <class Visit>
void for_each_extent(int fd, std::uint64_t begin, std::uint64_t end, Visit&& visit) noexcept {
  while (begin < end) {
    const off_t data = ::lseek(fd, static_cast<off_t>(begin), SEEK_DATA);
    if (data < 0 || static_cast<std::uint64_t>(data) >= end) return;
    const off_t hole = ::lseek(fd, data, SEEK_HOLE);
    const std::uint64_t until = hole < 0 ? end : std::min(static_cast<std::uint64_t>(hole), end);
    visit(static_cast<std::uint64_t>(data), until);
    begin = until;
  }
}

// The number of kB in a line of smaps that begins with `field`, or 0.
std::uint64_t kilobytes(const std::string& line, const char* field) {
  if (line.rfind(field, 0) != 0) return 0;
  return std::strtoull(line.c_str() + std::char_traits<char>::length(field), nullptr, 10);
}

}  // namespace

std::shared_ptr<const MappedRegion> MappedRegion::writable(const SealedMemory& memory) {
  const std::size_t size = memory.bytes().size();
  // An old size of 0 makes another mapping of the same shared pages (mremap(2)).
  return std::make_shared<const MappedRegion>(map_aligned(size, [&](void* at) {
    return ::mremap(memory.bytes().data(), 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
  }));
}

std::shared_ptr<const MappedRegion> MappedRegion::read_only(int fd, std::size_t size) {
  return std::make_shared<const MappedRegion>(map_aligned(
      size, [&](void* at) { return ::mmap(at, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0); }));
}

MappedRegion::~MappedRegion() { ::munmap(bytes_.data(), bytes_.size()); }

void MappedRegion::populate(int fd) const noexcept {
  for_each_extent(fd, 0, size(), [&](std::uint64_t begin, std::uint64_t end) {
    ::madvise(data() + begin, end - begin, kPopulateRead);
  });
}

double MappedRegion::huge_page_ratio() const {
  std::ifstream smaps("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(data());
  std::uint64_t resident = 0;
  std::uint64_t huge = 0;
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
      if (ours) break;
      ours = begin <= address && address < end;
    } else if (ours) {
      resident += kilobytes(line, "Rss:");
      huge += kilobytes(line, "ShmemPmdMapped:");
    }
  }
  return resident == 0 ? 0 : static_cast<double>(huge) / static_cast<double>(resident);
}

bool make_huge(std::span<std::byte> memory) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t begin = round_up(address, kHugePage);
  const std::uintptr_t end = (address + memory.size()) / kHugePage * kHugePage;
  return begin >= end || ::madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse) == 0;
}

bool begin_huge(std::span<std::byte> memory) noexcept {
  for (std::uint64_t at = 0; at < memory.size(); at += kHugePage) memory[at] = std::byte{0};
  return make_huge(memory);
}

std::uint64_t touched_bytes(int fd, std::uint64_t begin, std::uint64_t end) noexcept {
  std::uint64_t touched = 0;
  for_each_extent(fd, begin, end,
                  [&](std::uint64_t from, std::uint64_t to) { touched += to - from; });
  return touched;
}

}  // namespace anabranch::store
