#include "store/segments/pending_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace anabranch::store {
namespace {

[[noreturn]] void throw_errno(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

std::string random_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) {
    throw_errno(errno, "cannot get random bytes");
  }
  char name[40];
  std::snprintf(name, sizeof name, ".segment-%016" PRIx64 ".tmp", number);
  return name;
}

// Gives a file its name unless that is taken. File systems without RENAME_NOREPLACE have links.
int rename_without_replacing(int folder, const char* from, const char* to) noexcept {
  if (::renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::linkat(folder, from, folder, to, 0) != 0) return errno;
  ::unlinkat(folder, from, 0);
  return 0;
}

}  // namespace

PendingFile::PendingFile(const std::string& folder, const std::string& name) : name_(name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    throw std::invalid_argument("the name of a segment is not the name of a file");
  }
  if (folder.find('\0') != std::string::npos) {
    throw std::invalid_argument("the folder of a segment has a null byte in its name");
  }
  folder_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) throw_errno(errno, "cannot open the folder of a segment");
  try {
    while (!create()) {
    }
  } catch (...) {
    close();
    throw;
  }
}

// Creates and locks a temporary file; false where somebody deleted it in between as abandoned.
bool PendingFile::create() {
  temporary_name_ = random_name();
  fd_ = ::openat(folder_, temporary_name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_errno(errno, "cannot create a segment");
  // Fails for good where the file system knows no locks; its temporary files all look abandoned.
  while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat status = {};
  if (::fstat(fd_, &status) != 0) throw_errno(errno, "cannot create a segment");
  if (status.st_nlink > 0) return true;
  ::close(std::exchange(fd_, -1));
  return false;
}

PendingFile::~PendingFile() {
  if (!temporary_name_.empty()) ::unlinkat(folder_, temporary_name_.c_str(), 0);
  close();
}

void PendingFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_errno(written < 0 ? errno : EIO, "cannot write a segment");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PendingFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw_errno(got < 0 ? errno : EIO, "cannot read a segment back");
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void PendingFile::publish() {
  if (::fsync(fd_) != 0) throw_errno(errno, "cannot sync a segment");
  const int error = rename_without_replacing(folder_, temporary_name_.c_str(), name_.c_str());
  if (error != 0) throw_errno(error, "cannot publish a segment");
  temporary_name_.clear();
  if (::fsync(folder_) != 0) throw_errno(errno, "cannot sync the folder of a segment");
  close();
}

void PendingFile::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  if (folder_ >= 0) ::close(folder_);
  fd_ = folder_ = -1;
}

}  // namespace anabranch::store
