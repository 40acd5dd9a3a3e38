// Small segments and writers over them, for tests.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "anabranch/store/segment.h"
#include "anabranch/store/table_view.h"
#include "anabranch/store/writer.h"

namespace anabranch::testing {

struct TableSpec {
  std::string name;
  store::RowFormat format = {store::RowType::kF32, 4};
  store::KeyKind keys = store::KeyKind::kHashed;
  std::vector<std::uint64_t> base = {};  // keys; for dense ids 0, 1, ...
};

// What row `tag` holds: `dim` numbers that no other tag below 2^24 / dim has.
inline std::vector<float> row_values(std::uint32_t dim, std::uint64_t tag) {
  std::vector<float> values(dim);
  for (std::uint32_t d = 0; d < dim; ++d) values[d] = static_cast<float>(tag * dim + d);
  return values;
}

inline std::vector<float> rows_values(std::uint32_t dim, std::span<const std::uint64_t> tags) {
  std::vector<float> values;
  for (const std::uint64_t tag : tags) {
    const auto row = row_values(dim, tag);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

// The tag of a whole row, ~0 for one that is torn, 0 for no row. Tags of tests begin at 1.
inline std::uint64_t tag_of(const store::TableView& table, const std::byte* row) {
  if (row == nullptr) return 0;
  std::vector<float> values(table.format.dim);
  store::decode_row(table.format, row, values.data());
  const auto tag = static_cast<std::uint64_t>(values[0]) / table.format.dim;
  return values == row_values(table.format.dim, tag) ? tag : ~std::uint64_t{0};
}

inline std::uint64_t tag_at(const store::TableView& table, std::uint64_t key,
                            std::uint32_t version) {
  return tag_of(table, store::find_row(table, key, version));
}

// A folder that goes with its files.
class Folder {
 public:
  Folder() {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
  }
  ~Folder() {
    ::unlink((path_ + "/base").c_str());
    ::rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_ = "/tmp/anabranch-writer-XXXXXX";
};

// A mapped segment, in which row i of every table has tag i + 1. Its file is gone by then.
inline std::shared_ptr<const store::Segment> segment_of(const std::vector<TableSpec>& tables) {
  const Folder folder;
  store::SegmentWriter writer(folder.path(), "base", 7);
  for (const TableSpec& table : tables) {
    writer.begin_table(table.name, table.format, table.keys, table.base.size(),
                       store::Duplicates::kRefuse);
    std::vector<std::uint64_t> tags(table.base.size());
    for (std::size_t i = 0; i < tags.size(); ++i) tags[i] = i + 1;
    const bool dense = table.keys == store::KeyKind::kDenseId;
    writer.add(dense ? std::span<const std::uint64_t>() : std::span(table.base),
               rows_values(table.format.dim, tags));
  }
  writer.finish();
  const int fd = ::open((folder.path() + "/base").c_str(), O_RDONLY | O_CLOEXEC);
  const auto segment = store::Segment::map(fd);
  ::close(fd);
  return segment;
}

inline std::vector<std::uint64_t> counted(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i) numbers[i] = first + i;
  return numbers;
}

// A store of one hashed table without base rows.
inline std::unique_ptr<store::StoreWriter> empty_store(std::uint32_t arena_rows,
                                                       std::uint32_t keys) {
  const store::Capacity capacity[] = {{arena_rows, keys}};
  return store::StoreWriter::create(segment_of({{.name = "t"}}), capacity);
}

inline void upsert(store::Change& change, std::size_t table, std::uint32_t dim,
                   const std::vector<std::uint64_t>& keys, const std::vector<std::uint64_t>& tags) {
  change.upsert(table, keys, rows_values(dim, tags));
}

// Applies a change of table 0 (dim 4): upserts, then deletes. Returns its version.
inline std::uint32_t apply(store::StoreWriter& writer, const std::vector<std::uint64_t>& keys,
                           const std::vector<std::uint64_t>& tags,
                           const std::vector<std::uint64_t>& deletes = {}) {
  store::Change change = writer.begin();
  if (!keys.empty()) upsert(change, 0, 4, keys, tags);
  if (!deletes.empty()) change.erase(0, deletes);
  change.apply();
  return writer.version();
}

}  // namespace anabranch::testing
