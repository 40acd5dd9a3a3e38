#include "anabranch/store/writer.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "anabranch/store/errors.h"
#include "store/writer/change_state.h"
#include "store/writer/writer_core.h"

namespace anabranch::store {

// The face of a WriterCore.
class CoreWriter final : public StoreWriter {
 public:
  explicit CoreWriter(std::shared_ptr<WriterCore> core) : core_(std::move(core)) {}

  int fd() const noexcept override { return core_->memory.fd(); }
  std::shared_ptr<const Generation> generation() const noexcept override {
    return core_->generation;
  }
  std::uint32_t version() const noexcept override { return core_->version; }

  Change begin() override {
    check_no_change();
    if (core_->succeeded) throw std::logic_error("a new generation took over: change that one");
    if (core_->version == kMaxVersion) {
      throw StoreFull("version " + std::to_string(kMaxVersion) +
                      " is the last one: load the model anew");
    }
    return Change(std::make_unique<Change::State>(core_));
  }

  Change restore(std::uint32_t version) override {
    if (version < core_->floor || version > core_->version) {
      throw Refused("store version " + std::to_string(version) + " is not retained: those from " +
                    std::to_string(core_->floor) + " to " + std::to_string(core_->version) +
                    " are");
    }
    Change change = begin();
    for (std::size_t i = 0; i < core_->tables.size(); ++i) {
      core_->tables[i].restore(version);
      change.state_->reserve_changed_keys(i);
    }
    return change;
  }

  std::uint64_t reclaim(std::uint32_t floor) override {
    check_no_change();
    if (floor > core_->version) {
      throw std::invalid_argument("floor " + std::to_string(floor) + " is above store version " +
                                  std::to_string(core_->version));
    }
    floor = core_->floor = std::max(core_->floor, floor);
    std::uint64_t freed = 0;
    for (TableBooks& table : core_->tables) freed += table.reclaim(floor, core_->version + 1);
    return freed;
  }

  TableStats stats(std::size_t table) const override { return core_->table(table).stats(); }

  Bytes bytes() const override {
    const GenerationLayout& layout = core_->layout;
    const auto touched = [&](Extent extent) {
      return touched_bytes(core_->memory.fd(), extent.begin, extent.end);
    };
    Bytes bytes{};
    bytes.index = touched(layout.index) + touched(layout.dense);
    bytes.undo = touched(layout.undo);
    bytes.arena = touched(layout.arena);
    for (const TableBooks& table : core_->tables) bytes.books += table.books_bytes();
    return bytes;
  }

  double huge_page_ratio() const override { return core_->region->huge_page_ratio(); }

  std::unique_ptr<Growth> grow(std::span<const Capacity> capacities) override {
    if (core_->changed_keys != nullptr) throw std::logic_error("a growth is under way");
    if (core_->succeeded) throw std::logic_error("a new generation took over: grow that one");
    return make_growth(core_, capacities);
  }

 private:
  void check_no_change() const {
    if (core_->change_open) throw std::logic_error("a change is open: apply or drop it first");
  }

  std::shared_ptr<WriterCore> core_;
};

std::unique_ptr<StoreWriter> make_writer(std::shared_ptr<WriterCore> core) {
  return std::make_unique<CoreWriter>(std::move(core));
}

std::unique_ptr<StoreWriter> StoreWriter::create(std::shared_ptr<const Segment> segment,
                                                 std::span<const Capacity> capacities,
                                                 std::uint32_t version) {
  auto core = std::make_shared<WriterCore>(std::move(segment), capacities, version);
  const auto tables = core->segment->tables();
  for (std::size_t i = 0; i < tables.size(); ++i) core->tables[i].fill(*core->segment, tables[i]);
  core->publish();
  return make_writer(std::move(core));
}

}  // namespace anabranch::store
