#include <exception>
#include <stdexcept>
#include <string>

#include "anabranch/store/errors.h"
#include "store/writer/change_state.h"

namespace anabranch::store {
namespace {

void check_size(const TableBooks& table, std::size_t keys, std::size_t given, std::size_t unit,
                const char* what) {
  // By division: a product could wrap around.
  if (given % unit == 0 && given / unit == keys) return;
  throw Refused(table.name() + ": " + std::to_string(keys) + " keys come with " +
                std::to_string(given) + ' ' + what + ": give " + std::to_string(unit) +
                " for each");
}

}  // namespace

template <class Work>
void Change::State::on_table(std::size_t number, Work&& work) {
  if (!open) throw std::logic_error("this change was applied");
  if (failed) throw std::logic_error("a call on this change failed: drop it");
  TableBooks& table = core->table(number);
  failed = true;
  work(table);
  reserve_changed_keys(number);
  failed = false;
}

void Change::State::reserve_changed_keys(std::size_t table) {
  if (core->changed_keys == nullptr) return;
  reserve_more((*core->changed_keys)[table], core->tables[table].pending().entries().size());
}

Change::Change(std::unique_ptr<State> state) : state_(std::move(state)) {}
Change::Change(Change&&) noexcept = default;

Change::~Change() {
  if (state_ == nullptr || !state_->open) return;
  for (TableBooks& table : state_->core->tables) table.drop();
  state_->core->change_open = false;
}

void Change::upsert(std::size_t number, std::span<const std::uint64_t> keys,
                    std::span<const float> values) {
  state_->on_table(number, [&](TableBooks& table) {
    check_size(table, keys.size(), values.size(), table.view().format.dim, "numbers");
    table.upsert(keys, values);
  });
}

void Change::upsert_encoded(std::size_t number, std::span<const std::uint64_t> keys,
                            std::span<const std::byte> rows) {
  state_->on_table(number, [&](TableBooks& table) {
    check_size(table, keys.size(), rows.size(), table.view().format.stride(), "bytes of rows");
    table.upsert(keys, rows);
  });
}

void Change::erase(std::size_t number, std::span<const std::uint64_t> keys) {
  state_->on_table(number, [&](TableBooks& table) { table.erase(keys); });
}

ChangeCounts Change::counts() const noexcept {
  if (!state_->open) return state_->counts;
  ChangeCounts sum;
  for (const TableBooks& table : state_->core->tables) {
    const ChangeCounts& counts = table.pending().counts;
    sum.inserted += counts.inserted;
    sum.updated += counts.updated;
    sum.deleted += counts.deleted;
    sum.absent += counts.absent;
    sum.duplicates += counts.duplicates;
  }
  return sum;
}

std::uint32_t Change::version() const noexcept { return state_->version; }

void Change::apply() noexcept {
  State& state = *state_;
  // The caller's fault, and nothing that could be published afterwards would be right.
  if (!state.open || state.failed) std::terminate();
  state.counts = counts();
  WriterCore& core = *state.core;
  for (std::size_t i = 0; i < core.tables.size(); ++i) {
    if (core.changed_keys != nullptr) {
      for (const Entry& entry : core.tables[i].pending().entries()) {
        if (entry.action != Action::kNothing) (*core.changed_keys)[i].push_back(entry.key);
      }
    }
    core.tables[i].apply(state.version);
  }
  core.version = state.version;
  core.change_open = false;
  state.open = false;
}

}  // namespace anabranch::store
