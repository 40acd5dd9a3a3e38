// Tables in plain memory: what a generation maps, filled one key at a time, for tests of readers.
//
// Beside the bytes that lookups read it keeps every version of every row as f32, from which the
// reference of a lookup is computed.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "anabranch/aligned_buffer.h"
#include "anabranch/store/generation.h"

namespace anabranch::testing {

using store::Group;
using store::RowFormat;
using store::RowType;
using store::Slot;
using store::TableView;

class MemoryTable {
 public:
  using Row = std::vector<float>;

  // A hashed table with room for `arena_rows` rows, all of which come through `put`.
  static MemoryTable hashed(RowFormat format, std::uint32_t arena_rows, std::uint64_t groups) {
    MemoryTable table(format, 0, arena_rows);
    table.seed_ = 0x51ab;
    table.groups_ = groups;
    table.index_ = std::make_unique<Group[]>(groups + 1);
    std::memset(table.index_.get(), 0, (groups + 1) * sizeof(Group));
    return table;
  }

  // Dense ids 0..rows-1; their rows are set with `set_base`.
  static MemoryTable dense(RowFormat format, std::uint32_t rows, std::uint32_t arena_rows) {
    MemoryTable table(format, rows, arena_rows);
    table.changed_.assign(rows / 64 + 1, 0);
    table.rvs_.assign(rows, 0);
    return table;
  }

  void set_base(std::uint32_t row, const Row& values) {
    history_[row][store::kFirstVersion] = encode(row, values);
  }

  // Makes `values` the row of `key` from store version `version` on; none: deletes it.
  void put(std::uint64_t key, std::uint32_t version, const std::optional<Row>& values) {
    if (used_ == arena_rows_) throw std::logic_error("the test's arena is full");
    const std::uint32_t row = base_rows_ + used_++;
    std::uint64_t& rv = rv_of(key);
    previous_[row - base_rows_] = rv & ~store::kOverflow;
    std::uint64_t next = store::make_rv(row, version) | (rv & store::kOverflow);
    if (values) {
      history_[key][version] = encode(row, *values);
    } else {
      next |= store::kTombstone;
      history_[key][version] = std::nullopt;
    }
    rv = next;
  }

  // The numbers that a lookup of `key` at `version` reads; none where it is missing.
  std::optional<Row> at(std::uint64_t key, std::uint32_t version) const {
    const auto versions = history_.find(key);
    if (versions == history_.end()) return std::nullopt;
    auto after = versions->second.upper_bound(version);
    if (after == versions->second.begin()) return std::nullopt;
    return (--after)->second;
  }

  TableView view() const {
    TableView view{};
    view.format = format_;
    view.base_rows = base_rows_;
    view.arena_rows = arena_rows_;
    view.base = rows_.get();
    view.arena = rows_.get() + std::size_t{base_rows_} * format_.stride();
    view.previous = previous_.data();
    view.seed = seed_;
    view.groups = groups_;
    view.index = index_.get();
    view.changed = changed_.data();
    view.rvs = rvs_.data();
    return view;
  }

  RowFormat format() const { return format_; }
  std::uint32_t base_rows() const { return base_rows_; }
  Group* index() { return index_.get(); }
  std::vector<std::uint64_t>& previous() { return previous_; }

 private:
  MemoryTable(RowFormat format, std::uint32_t base_rows, std::uint32_t arena_rows)
      : format_(format), base_rows_(base_rows), arena_rows_(arena_rows), previous_(arena_rows, 0) {
    // Exactly the rows: AddressSanitizer sees a read behind the last one.
    const std::size_t bytes = std::size_t{base_rows + arena_rows} * format.stride();
    rows_.reset(new (std::align_val_t{64}) std::byte[bytes]);
    std::memset(rows_.get(), 0, bytes);
  }

  // Writes the row and returns what can be read back.
  Row encode(std::uint32_t row, const Row& values) {
    std::byte* const at = rows_.get() + std::size_t{row} * format_.stride();
    store::encode_rows(format_, values, std::span(at, format_.stride()));
    Row decoded(format_.dim);
    store::decode_row(format_, at, decoded.data());
    return decoded;
  }

  // The word that names the newest row of `key`; a free slot where the key is new.
  std::uint64_t& rv_of(std::uint64_t key) {
    if (groups_ == 0) {
      changed_[key / 64] |= std::uint64_t{1} << key % 64;
      return rvs_[key];
    }
    if (store::is_side_key(key)) return index_[groups_].slots[store::side_slot(key)].rv;
    std::uint64_t group = store::home_group(key, seed_, groups_);
    for (std::uint32_t probe = 0; probe < store::kMaxProbeGroups; ++probe) {
      for (Slot& slot : index_[group].slots) {
        if (slot.key != key && slot.key != store::kEmptyKey) continue;
        slot.key = key;
        return slot.rv;
      }
      index_[group].slots[0].rv |= store::kOverflow;
      if (++group == groups_) group = 0;
    }
    throw std::logic_error("the test's index is full");
  }

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };

  RowFormat format_;
  std::uint32_t base_rows_;
  std::uint32_t arena_rows_;
  std::uint32_t used_ = 0;
  std::uint64_t seed_ = 0;
  std::uint64_t groups_ = 0;
  std::unique_ptr<Group[]> index_;
  std::unique_ptr<std::byte[], Free> rows_;
  std::vector<std::uint64_t> previous_;
  std::vector<std::uint64_t> changed_;
  std::vector<std::uint64_t> rvs_;
  std::map<std::uint64_t, std::map<std::uint32_t, std::optional<Row>>> history_;
};

// A generation over tables in plain memory, which outlive it.
class MemoryGeneration : public store::Generation {
 public:
  explicit MemoryGeneration(std::vector<TableView> tables)
      : Generation(nullptr, std::move(tables), 0) {}
};

}  // namespace anabranch::testing
