#include "store/writer/generation_layout.h"

#include <bit>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "anabranch/crc32c.h"
#include "anabranch/store/errors.h"
#include "store/writer/mapped_region.h"

namespace anabranch::store {
namespace {

static_assert(std::endian::native == std::endian::little, "generations are little-endian");

constexpr char kMagic[8] = {'A', 'N', 'A', 'B', 'G', 'E', 'N', 'R'};
constexpr std::uint32_t kEndianTag = 0x01020304;
constexpr std::uint32_t kFormat = 1;
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMostRows = std::uint64_t{kMaxRow} + 1;

using Bytes = std::uint64_t (TableRecord::*)() const noexcept;
using Offset = std::uint64_t TableRecord::*;

// Places sections behind one another: those that fill huge pages first and at multiples of one,
// the others packed behind them.
class Placer {
 public:
  explicit Placer(std::uint64_t header_bytes) : end_(header_bytes) {}

  // The next section begins in a page of its own, a huge one where that pays.
  void align(std::uint64_t size) { end_ = round_up(end_, size >= kHugePage ? kHugePage : kPage); }
  void place(std::span<TableRecord> tables, Bytes bytes, Offset offset) {
    for (const bool large : {true, false}) {
      for (TableRecord& table : tables) {
        const std::uint64_t size = (table.*bytes)();
        if ((size >= kHugePage) != large) continue;
        end_ = round_up(end_, large ? kHugePage : kAlignment);
        table.*offset = end_;
        end_ += size;
      }
    }
  }
  std::uint64_t end() const noexcept { return end_; }

 private:
  std::uint64_t end_;
};

std::uint64_t header_bytes(std::size_t tables) {
  return sizeof(GenerationHeader) + tables * sizeof(TableRecord);
}

TableRecord record_of(const SegmentTable& table, const Capacity& capacity) {
  const std::string where = "table '" + table.name + "': ";
  if (std::uint64_t{table.rows} + capacity.arena_rows > kMostRows) {
    throw std::invalid_argument(where + std::to_string(table.rows) + " base rows and " +
                                std::to_string(capacity.arena_rows) + " arena rows are more than " +
                                std::to_string(kMostRows) + ": ask for fewer arena rows");
  }
  TableRecord record{};
  record.row_type = static_cast<std::uint32_t>(table.format.type);
  record.dim = table.format.dim;
  record.key_kind = static_cast<std::uint32_t>(table.keys);
  record.base_rows = table.rows;
  record.arena_rows = capacity.arena_rows;
  if (table.keys == KeyKind::kDenseId) return record;
  if (capacity.keys < table.rows || capacity.keys > kMostRows) {
    throw std::invalid_argument(where + "room for " + std::to_string(capacity.keys) +
                                " keys is out of range: its base has " +
                                std::to_string(table.rows) + ", a table at most " +
                                std::to_string(kMostRows));
  }
  record.seed = table.seed;
  record.groups = groups_for(capacity.keys);
  return record;
}

[[noreturn]] void damaged(const std::string& what) {
  throw Damaged("generation: " + what + ": have its writer make a new one");
}

bool lies_inside(std::uint64_t offset, std::uint64_t size, std::uint64_t bytes) {
  return offset % kAlignment == 0 && offset <= bytes && size <= bytes - offset;
}

void check_record(const TableRecord& record, const SegmentTable& table, std::uint64_t bytes) {
  const std::string where = "table '" + table.name + "' ";
  const bool dense = table.keys == KeyKind::kDenseId;
  if (record.row_type != static_cast<std::uint32_t>(table.format.type) ||
      record.dim != table.format.dim || record.key_kind != static_cast<std::uint32_t>(table.keys) ||
      record.base_rows != table.rows) {
    damaged(where + "is not the one of this segment");
  }
  if (std::uint64_t{record.base_rows} + record.arena_rows > kMostRows) {
    damaged(where + "has more rows than can be");
  }
  if (dense ? record.groups != 0 : record.groups == 0 || record.groups >= bytes / sizeof(Group)) {
    damaged(where + "has an impossible index");
  }
  if (!lies_inside(record.off_index, record.index_bytes(), bytes) ||
      !lies_inside(record.off_changed, record.changed_bytes(), bytes) ||
      !lies_inside(record.off_rvs, record.rvs_bytes(), bytes) ||
      !lies_inside(record.off_undo, record.undo_bytes(), bytes) ||
      !lies_inside(record.off_arena, record.arena_bytes(), bytes)) {
    damaged(where + "has a section that leaves the memory");
  }
}

std::uint32_t checksum_of(GenerationHeader header, std::span<const TableRecord> tables) {
  header.checksum = 0;
  return crc32c(std::as_bytes(tables), crc32c(std::as_bytes(std::span(&header, 1))));
}

}  // namespace

std::uint64_t TableRecord::index_bytes() const noexcept {
  return groups == 0 ? 0 : (groups + 1) * sizeof(Group);
}
std::uint64_t TableRecord::changed_bytes() const noexcept {
  return groups != 0 ? 0 : (std::uint64_t{base_rows} + 63) / 64 * 8;
}
std::uint64_t TableRecord::rvs_bytes() const noexcept {
  return groups != 0 ? 0 : std::uint64_t{base_rows} * 8;
}
std::uint64_t TableRecord::undo_bytes() const noexcept { return std::uint64_t{arena_rows} * 8; }
std::uint64_t TableRecord::arena_bytes() const noexcept {
  return std::uint64_t{arena_rows} * RowFormat{static_cast<RowType>(row_type), dim}.stride();
}

GenerationLayout plan_layout(const Segment& segment, std::span<const Capacity> capacities) {
  const auto tables = segment.tables();
  if (capacities.size() != tables.size()) {
    throw std::invalid_argument(std::to_string(capacities.size()) + " capacities for " +
                                std::to_string(tables.size()) + " tables: give one for each");
  }
  GenerationLayout layout{};
  for (std::size_t i = 0; i < tables.size(); ++i) {
    layout.tables.push_back(record_of(tables[i], capacities[i]));
  }
  Placer placer(header_bytes(tables.size()));
  const auto extent = [&](std::initializer_list<std::pair<Bytes, Offset>> sections) {
    std::uint64_t total = 0;
    for (const auto& [bytes, offset] : sections) {
      for (const TableRecord& table : layout.tables) total += (table.*bytes)();
    }
    placer.align(total);
    const std::uint64_t begin = placer.end();
    for (const auto& [bytes, offset] : sections) placer.place(layout.tables, bytes, offset);
    return Extent{begin, placer.end()};
  };
  layout.index = extent({{&TableRecord::index_bytes, &TableRecord::off_index}});
  layout.dense = extent({{&TableRecord::changed_bytes, &TableRecord::off_changed},
                         {&TableRecord::rvs_bytes, &TableRecord::off_rvs}});
  layout.undo = extent({{&TableRecord::undo_bytes, &TableRecord::off_undo}});
  layout.arena = extent({{&TableRecord::arena_bytes, &TableRecord::off_arena}});
  layout.bytes = round_up(placer.end(), kPage);
  return layout;
}

void write_header(std::span<std::byte> memory, const GenerationLayout& layout,
                  const Segment& segment) {
  GenerationHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.endian_tag = kEndianTag;
  header.format = kFormat;
  header.bytes = layout.bytes;
  header.tables = static_cast<std::uint32_t>(layout.tables.size());
  header.segment_bytes = segment.bytes();
  header.model_version = segment.model_version();
  header.checksum = checksum_of(header, layout.tables);
  std::memcpy(memory.data(), &header, sizeof header);
  if (layout.tables.empty()) return;
  std::memcpy(memory.data() + sizeof header, layout.tables.data(),
              layout.tables.size() * sizeof(TableRecord));
}

std::vector<TableRecord> read_header(std::span<const std::byte> memory, const Segment& segment) {
  const auto expected = segment.tables();
  if (memory.size() < sizeof(GenerationHeader)) damaged("it is too small for a header");
  // Copied out first: whoever writes there may go on doing so.
  GenerationHeader header;
  std::memcpy(&header, memory.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) damaged("this is no generation");
  if (header.endian_tag != kEndianTag) throw Foreign("generation: it has another byte order");
  if (header.format != kFormat) {
    throw Foreign("generation: it has format " + std::to_string(header.format) +
                  ", this reader knows " + std::to_string(kFormat));
  }
  if (header.bytes != memory.size()) damaged("its size is not what its header says");
  if (header.tables != expected.size() || header.segment_bytes != segment.bytes() ||
      header.model_version != segment.model_version()) {
    damaged("it belongs to another segment");
  }
  if (memory.size() < header_bytes(expected.size())) damaged("it is too small for its tables");
  std::vector<TableRecord> records(expected.size());
  if (!records.empty()) {
    std::memcpy(records.data(), memory.data() + sizeof header,
                records.size() * sizeof(TableRecord));
  }
  if (checksum_of(header, records) != header.checksum)
    damaged("the checksum of its layout differs");
  for (std::size_t i = 0; i < records.size(); ++i) {
    check_record(records[i], expected[i], header.bytes);
  }
  return records;
}

TableView view_of(const Segment& segment, std::size_t number, const TableRecord& record,
                  const std::byte* memory) {
  const SegmentTable& table = segment.tables()[number];
  const auto words = [&](std::uint64_t offset) {
    return reinterpret_cast<const std::uint64_t*>(memory + offset);
  };
  const bool dense = record.groups == 0;
  return {
      .format = table.format,
      .base_rows = record.base_rows,
      .arena_rows = record.arena_rows,
      .base = segment.data() + table.off_rows,
      .arena = memory + record.off_arena,
      .previous = words(record.off_undo),
      .seed = record.seed,
      .groups = record.groups,
      .index = dense ? nullptr : reinterpret_cast<const Group*>(memory + record.off_index),
      .changed = dense ? words(record.off_changed) : nullptr,
      .rvs = dense ? words(record.off_rvs) : nullptr,
  };
}

}  // namespace anabranch::store
