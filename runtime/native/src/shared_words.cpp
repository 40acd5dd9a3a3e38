#include "anabranch/shared_words.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace anabranch {
namespace {

static_assert(std::endian::native == std::endian::little, "the page is little-endian");

// The header, docs/formats.md, section "Shared words".
struct Header {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t line_bytes;
  std::uint64_t page_bytes;
  std::uint64_t words;
  std::uint64_t reserved[4];
};

constexpr std::uint64_t kMagic = 0x5344524F57424E41;  // "ANBWORDS"
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPageStep = 4096;
static_assert(sizeof(Header) == kLineBytes);

constexpr std::size_t page_bytes(std::size_t words) {
  return ((words + 1) * kLineBytes + kPageStep - 1) / kPageStep * kPageStep;
}

[[noreturn]] void refused(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

// A descriptor until `release`.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::byte* map(int fd, std::size_t bytes, int protection) {
  void* mapped = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) refused(errno, "cannot map shared words");
  return static_cast<std::byte*>(mapped);
}

// The number of words, found to fit the file.
std::size_t checked_words(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) refused(errno, "cannot open shared words");
  // Without the seal words cut short under us would end this process with SIGBUS.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw DamagedWords("not shared words: the size is not sealed");
  }
  Header header{};
  if (::pread(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.magic != kMagic) {
    throw DamagedWords("not shared words: the header is missing");
  }
  if (header.format != kFormat) {
    throw DamagedWords("shared words have format " + std::to_string(header.format) +
                       ", this reader knows " + std::to_string(kFormat));
  }
  if (header.line_bytes != kLineBytes || header.words == 0 ||
      header.words > SharedWords::kMaxWords || header.page_bytes != page_bytes(header.words) ||
      header.page_bytes != static_cast<std::uint64_t>(status.st_size)) {
    throw DamagedWords("shared words have a damaged header: " + std::to_string(header.words) +
                       " words in " + std::to_string(status.st_size) + " bytes");
  }
  return header.words;
}

}  // namespace

SharedWords SharedWords::create(std::size_t words) {
  if (words == 0 || words > kMaxWords) {
    throw std::invalid_argument("shared words are 1 to " + std::to_string(kMaxWords) + ", not " +
                                std::to_string(words));
  }
  const std::size_t bytes = page_bytes(words);
  Descriptor fd(::memfd_create("anabranch-words", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || ::fchmod(fd.get(), 0600) != 0 ||
      ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    refused(errno, "cannot create shared words");
  }
  std::byte* page = map(fd.get(), bytes, PROT_READ | PROT_WRITE);
  const Header header{kMagic, kFormat, kLineBytes, bytes, words, {}};
  std::memcpy(page, &header, sizeof header);
  return SharedWords(fd.release(), page, words, true);
}

SharedWords SharedWords::open(int fd, bool writable) {
  const std::size_t words = checked_words(fd);
  const int flags = ::fcntl(fd, F_GETFL);
  if (writable && (flags & O_ACCMODE) != O_RDWR) {
    refused(EACCES, "cannot open shared words for writing: this descriptor only reads");
  }
  Descriptor own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) refused(errno, "cannot open shared words");
  std::byte* page =
      map(own.get(), page_bytes(words), writable ? PROT_READ | PROT_WRITE : PROT_READ);
  return SharedWords(own.release(), page, words, writable);
}

SharedWords::SharedWords(SharedWords&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      page_(std::exchange(other.page_, nullptr)),
      words_(std::exchange(other.words_, 0)),
      writable_(other.writable_) {}

SharedWords::~SharedWords() {
  if (page_ == nullptr) return;
  ::munmap(page_, page_bytes(words_));
  ::close(fd_);
}

int SharedWords::reader_fd() const {
  // Only a new open file description can have another access mode.
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refused(errno, "cannot open shared words for reading");
  return fd;
}

void SharedWords::no_such_word(std::size_t index) const {
  throw std::out_of_range("word " + std::to_string(index) + " of " + std::to_string(words_));
}

void SharedWords::read_only() { refused(EACCES, "these shared words are open for reading only"); }

}  // namespace anabranch
