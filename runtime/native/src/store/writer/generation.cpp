#include "anabranch/store/generation.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "anabranch/store/errors.h"
#include "store/writer/mapped_generation.h"

namespace anabranch::store {

std::shared_ptr<const Generation> Generation::map(int fd, std::shared_ptr<const Segment> segment,
                                                  bool populate) {
  // Without the seal it could be cut short under the mapping; so the seal first, then the size.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 && errno == EBADF) {
    throw std::system_error(errno, std::generic_category(), "cannot open a generation");
  }
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Damaged("generation: its size is not sealed: this is not memory of a store's writer");
  }
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot open a generation");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < sizeof(GenerationHeader)) throw Damaged("generation: it is too small for a header");
  const auto region = MappedRegion::read_only(fd, size);
  const auto records = read_header({region->data(), region->size()}, *segment);
  if (populate) region->populate(fd);
  return std::make_shared<const MappedGeneration>(std::move(segment), region, records);
}

}  // namespace anabranch::store
