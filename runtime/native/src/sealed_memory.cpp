#include "sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace anabranch {

SealedMemory::SealedMemory(const char* name, std::size_t size_bytes)
    : fd_(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  void* mapped = MAP_FAILED;
  if (fd_ >= 0 && ::fchmod(fd_, 0600) == 0 &&
      ::ftruncate(fd_, static_cast<off_t>(size_bytes)) == 0 &&
      ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    mapped = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  }
  if (mapped == MAP_FAILED) {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    throw std::system_error(error, std::generic_category(), "cannot create shared memory");
  }
  // Kernels before 5.1 lack this seal; there, others map read-only by their own choice.
  ::fcntl(fd_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SEAL);
  bytes_ = {static_cast<std::byte*>(mapped), size_bytes};
}

SealedMemory::~SealedMemory() {
  ::munmap(bytes_.data(), bytes_.size());
  ::close(fd_);
}

}  // namespace anabranch
