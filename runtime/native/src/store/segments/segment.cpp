#include "anabranch/store/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "anabranch/store/errors.h"
#include "sealed_memory.h"
#include "store/segments/segment_check.h"
#include "store/segments/segment_directory.h"
#include "store/segments/segment_layout.h"
#include "store/segments/segment_mapping.h"

namespace anabranch::store {
namespace {

using segment_layout::kHugePage;

constexpr std::size_t kReadBytes = std::size_t{8} << 20;

// A descriptor that closes itself; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

// Asks for large pages before there is anything in them: a byte in each is enough for the kernel to
// make one, while making them of a full copy would copy all of it once more.
void take_large_pages(const SealedMemory& memory) {
  const std::span<std::byte> all = memory.bytes();
  for (std::uint64_t at = 0; at + kHugePage <= all.size(); at += kHugePage) all[at] = std::byte{0};
  SegmentMapping(memory.fd(), all.size()).collapse();
}

// Sealed memory with the first `bytes` bytes behind `fd`.
Descriptor copy_of(int fd, std::uint64_t bytes) {
  const SealedMemory memory("anabranch-segment", bytes);
  const std::span<std::byte> all = memory.bytes();
  take_large_pages(memory);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::size_t most = std::min<std::uint64_t>(kReadBytes, bytes - at);
    const ssize_t got = ::pread(fd, all.data() + at, most, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "cannot read a segment");
    if (got == 0) throw Damaged("segment: the file was truncated while it was read");
    at += static_cast<std::uint64_t>(got);
  }
  Descriptor own(::fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot keep a copied segment");
  }
  return own;
}

}  // namespace

struct Segment::State {
  State(int fd, const segment_layout::Header& header, Descriptor memory)
      : mapping(fd, header.file_bytes),
        directory(read_directory(header, mapping.bytes())),
        memory_fd(std::move(memory)) {}

  SegmentMapping mapping;
  SegmentDirectory directory;
  Descriptor memory_fd;
};

Segment::Segment(std::unique_ptr<State> state) : state_(std::move(state)) {}

Segment::~Segment() = default;

std::shared_ptr<const Segment> Segment::map(int fd, Residency residency) {
  auto state = std::make_unique<State>(fd, read_header(fd), Descriptor(-1));
  if (residency == Residency::kPopulated) state->mapping.populate();
  if (residency == Residency::kLocked) state->mapping.lock();
  return std::shared_ptr<const Segment>(new Segment(std::move(state)));
}

std::shared_ptr<const Segment> Segment::copy(int fd) {
  Descriptor memory = copy_of(fd, read_header(fd).file_bytes);
  // Read again: what counts is what was copied.
  const segment_layout::Header header = read_header(memory.get());
  const int memory_fd = memory.get();
  auto state = std::make_unique<State>(memory_fd, header, std::move(memory));
  state->mapping.collapse();
  state->mapping.populate();
  return std::shared_ptr<const Segment>(new Segment(std::move(state)));
}

void Segment::verify(const std::function<void(std::uint64_t)>& progress) const {
  check_blocks(state_->directory, state_->mapping.bytes(), progress);
  for (const SegmentTable& table : tables()) {
    store::check_index(table, data());
    check_keys(table, data());
  }
}

void Segment::check_index(std::size_t table) const {
  store::check_index(state_->directory.tables.at(table), data());
}

std::uint64_t Segment::model_version() const noexcept {
  return state_->directory.header.model_version;
}
std::uint32_t Segment::format() const noexcept { return state_->directory.header.format; }
std::uint64_t Segment::bytes() const noexcept { return state_->mapping.bytes().size(); }
std::span<const SegmentTable> Segment::tables() const noexcept { return state_->directory.tables; }
const std::byte* Segment::data() const noexcept { return state_->mapping.bytes().data(); }
int Segment::memory_fd() const noexcept { return state_->memory_fd.get(); }

double Segment::huge_page_ratio() const {
  return static_cast<double>(state_->mapping.huge_page_bytes()) / static_cast<double>(bytes());
}

Segment::Probes Segment::probes(std::size_t table) const {
  return count_probes(state_->directory.tables.at(table), data());
}

}  // namespace anabranch::store
