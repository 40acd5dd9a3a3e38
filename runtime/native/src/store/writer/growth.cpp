// A new generation is filled beside the old one: base rows keep their numbers, arena rows are
// copied, and keys that changed meanwhile are copied again.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "store/writer/index_filler.h"
#include "store/writer/writer_core.h"

namespace anabranch::store {
namespace {

constexpr std::size_t kBatch = 64;          // rows that are copied together
constexpr std::uint64_t kPlacesPerRow = 8;  // looked at in the time of a row that is copied
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 60;  // of one step: all there are

// Copies into one table of a generation that nobody reads yet. What it was given is there after
// `flush`, at the latest.
class TableCopy {
 public:
  TableCopy(const TableBooks& from, TableBooks& to) : from_(from), to_(to) {}

  // Copies what lies at a place.
  void copy(const TableBooks::Newest& newest) {
    if (row_of(newest.rv) >= from_.view().base_rows) return copy_row(newest.key, newest.rv);
    base_keys_.push_back(newest.key);
    base_rows_.push_back(row_of(newest.rv));
    if (base_keys_.size() == kBatch) flush();
  }
  // Gives `key` what it has by now.
  void copy_key(std::uint64_t key) {
    if (const std::uint64_t rv = from_.newest_of(key); rv != 0) return copy_row(key, rv);
    gone_.push_back(key);
    if (gone_.size() == kBatch) flush();
  }
  void flush() {
    to_.put_base_rows(base_keys_, base_rows_);
    // Deletes first, in a change of their own: they make room.
    if (!gone_.empty()) {
      to_.erase(gone_);
      settle();
    }
    gather();
    to_.upsert(keys_, rows_);
    settle();
    base_keys_.clear();
    base_rows_.clear();
    keys_.clear();
    numbers_.clear();
    gone_.clear();
  }

 private:
  // Applies what is pending, and frees at once what it superseded.
  void settle() {
    to_.apply(kFirstVersion);
    // Twice: the first one ends tombstones, the second one makes their slots new.
    to_.reclaim(kFirstVersion, kFirstVersion);
    to_.reclaim(kFirstVersion, kFirstVersion);
  }
  // The rows of `keys_`, one behind the other.
  void gather() {
    const TableView& view = from_.view();
    const std::size_t stride = view.format.stride();
    rows_.resize(numbers_.size() * stride);
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      std::memcpy(rows_.data() + i * stride, view.row(numbers_[i]), stride);
    }
  }
  void copy_row(std::uint64_t key, std::uint64_t rv) {
    keys_.push_back(key);
    numbers_.push_back(row_of(rv));
    __builtin_prefetch(from_.view().row(row_of(rv)));
    if (keys_.size() == kBatch) flush();
  }

  const TableBooks& from_;
  TableBooks& to_;
  std::vector<std::uint64_t> base_keys_;
  std::vector<std::uint32_t> base_rows_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> numbers_;  // of their rows
  std::vector<std::byte> rows_;
  std::vector<std::uint64_t> gone_;
};

class CoreGrowth final : public StoreWriter::Growth {
 public:
  CoreGrowth(std::shared_ptr<WriterCore> from, std::span<const Capacity> capacities)
      : from_(std::move(from)),
        to_(std::make_shared<WriterCore>(from_->segment, capacities, from_->version)),
        changed_(std::make_shared<ChangedKeys>(from_->tables.size())),
        caught_up_(from_->tables.size()) {
    // Another seed, so that keys that crowd in the old index do not crowd here.
    for (TableBooks& table : to_->tables) table.set_seed(random_seed());
    // A change that is open has its keys to tell as well.
    for (std::size_t i = 0; i < from_->tables.size(); ++i) {
      (*changed_)[i].reserve(from_->tables[i].pending().entries().size());
    }
    from_->changed_keys = changed_;
  }
  ~CoreGrowth() override { end(); }

  bool step(std::uint64_t rows) override {
    check_usable();
    failed_ = true;
    std::uint64_t budget = std::min(rows, kMostRows) * kPlacesPerRow;
    while (budget != 0 && table_ < from_->tables.size()) copy_places(budget);
    for (std::size_t i = 0; budget != 0 && i < changed_->size(); ++i) catch_up(i, budget);
    failed_ = false;
    return table_ == from_->tables.size();
  }

  std::unique_ptr<StoreWriter> finish() override {
    check_usable();
    if (from_->change_open) throw std::logic_error("a change is open: apply or drop it first");
    step(kMostRows);
    to_->version = to_->floor = from_->version;
    to_->publish();
    from_->succeeded = true;
    end();
    return make_writer(std::move(to_));
  }

 private:
  void check_usable() const {
    if (to_ == nullptr) throw std::logic_error("this growth was finished");
    if (failed_) throw std::logic_error("a step of this growth failed: drop it");
  }
  // Copies places of the current table until the budget is used up or the table is at its end.
  void copy_places(std::uint64_t& budget) {
    const TableBooks& from = from_->tables[table_];
    TableCopy copy(from, to_->tables[table_]);
    const std::uint64_t places = from.places();
    while (budget != 0 && place_ < places) {
      --budget;
      if (place_ % 64 == 0 && from.is_untouched(place_)) {
        place_ += 64;
        continue;
      }
      const TableBooks::Newest newest = from.newest_at(place_++);
      if (newest.rv == 0) continue;
      copy.copy(newest);
      budget -= std::min(budget, kPlacesPerRow - 1);
    }
    copy.flush();
    if (place_ < places) return;
    ++table_;
    place_ = 0;
  }

  // Copies keys of table `number` that changed, in the order in which they did.
  void catch_up(std::size_t number, std::uint64_t& budget) {
    std::vector<std::uint64_t>& keys = (*changed_)[number];
    std::size_t& next = caught_up_[number];
    TableCopy copy(from_->tables[number], to_->tables[number]);
    while (budget != 0 && next < keys.size()) {
      copy.copy_key(keys[next++]);
      budget -= std::min(budget, kPlacesPerRow);
    }
    copy.flush();
    if (next < keys.size()) return;
    keys.clear();
    next = 0;
  }

  void end() noexcept {
    if (from_->changed_keys == changed_) from_->changed_keys = nullptr;
  }

  std::shared_ptr<WriterCore> from_;
  std::shared_ptr<WriterCore> to_;  // null once finished
  std::shared_ptr<ChangedKeys> changed_;
  std::size_t table_ = 0;  // that is being copied
  std::uint64_t place_ = 0;
  std::vector<std::size_t> caught_up_;  // of changed keys, by table
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<StoreWriter::Growth> make_growth(std::shared_ptr<WriterCore> core,
                                                 std::span<const Capacity> capacities) {
  return std::make_unique<CoreGrowth>(std::move(core), capacities);
}

}  // namespace anabranch::store
