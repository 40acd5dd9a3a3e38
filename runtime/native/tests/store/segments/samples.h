// Folders and segments that the tests of segments share.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "anabranch/store/segment.h"
#include "anabranch/store/slots.h"

namespace anabranch::testing {

// A new folder that goes with the object.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "segments-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      all.push_back(entry.path().filename().string());
    }
    return all;
  }

 private:
  std::filesystem::path path_;
};

inline std::shared_ptr<const store::Segment> map_file(
    const std::string& path, store::Residency residency = store::Residency::kLazy) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error("cannot open " + path);
  try {
    auto segment = store::Segment::map(fd, residency);
    ::close(fd);
    return segment;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

inline std::vector<std::byte> bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars(std::istreambuf_iterator<char>(file), {});
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

inline void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// The number of a key's row, looked up one group after the other.
inline std::optional<std::uint32_t> row_number(const store::Segment& segment, std::size_t table,
                                               std::uint64_t key) {
  const store::SegmentTable& entry = segment.tables()[table];
  if (entry.keys == store::KeyKind::kDenseId) {
    return key < entry.rows ? std::optional(static_cast<std::uint32_t>(key)) : std::nullopt;
  }
  const auto* index = reinterpret_cast<const store::Group*>(segment.data() + entry.off_index);
  if (store::is_side_key(key)) {
    const std::uint64_t rv = index[entry.groups].slots[store::side_slot(key)].rv;
    return rv == 0 ? std::nullopt : std::optional(store::row_of(rv));
  }
  std::uint64_t at = store::home_group(key, entry.seed, entry.groups);
  for (std::uint32_t probe = 0; probe < store::kMaxProbeGroups; ++probe) {
    for (const store::Slot& slot : index[at].slots) {
      if (slot.key == key) return store::row_of(slot.rv);
    }
    if ((index[at].slots[0].rv & store::kOverflow) == 0) return std::nullopt;
    at = (at + 1) % entry.groups;
  }
  return std::nullopt;
}

// The numbers of a key's row; nothing for a missing key.
inline std::vector<float> row_of_key(const store::Segment& segment, std::size_t table,
                                     std::uint64_t key) {
  const store::SegmentTable& entry = segment.tables()[table];
  const auto number = row_number(segment, table, key);
  if (!number) return {};
  std::vector<float> values(entry.format.dim);
  store::decode_row(entry.format, segment.data() + entry.off_rows + *number * entry.format.stride(),
                    values.data());
  return values;
}

}  // namespace anabranch::testing
