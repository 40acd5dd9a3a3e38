#include "store/writer/writer_core.h"

#include <stdexcept>
#include <utility>

#include "store/writer/mapped_generation.h"

namespace anabranch::store {

WriterCore::WriterCore(std::shared_ptr<const Segment> over, std::span<const Capacity> capacities,
                       std::uint32_t first_version)
    : segment(std::move(over)),
      layout(plan_layout(*segment, capacities)),
      memory("anabranch-generation", layout.bytes),
      region(MappedRegion::writable(memory)),
      version(first_version),
      floor(first_version) {
  if (version < kFirstVersion || version > kMaxVersion) {
    throw std::invalid_argument("store version " + std::to_string(version) +
                                " is out of range: versions are " + std::to_string(kFirstVersion) +
                                " to " + std::to_string(kMaxVersion));
  }
  begin_huge({region->data() + layout.index.begin, region->data() + layout.index.end});
  tables.reserve(layout.tables.size());
  for (std::size_t i = 0; i < layout.tables.size(); ++i) {
    const TableRecord& record = layout.tables[i];
    tables.emplace_back(segment->tables()[i], capacities[i], record,
                        view_of(*segment, i, record, region->data()), region->data());
  }
}

void WriterCore::publish() {
  for (std::size_t i = 0; i < tables.size(); ++i) layout.tables[i].seed = tables[i].view().seed;
  write_header({region->data(), region->size()}, layout, *segment);
  make_huge({region->data() + layout.index.begin, region->data() + layout.index.end});
  generation = std::make_shared<const MappedGeneration>(segment, region, layout.tables);
}

TableBooks& WriterCore::table(std::size_t number) {
  if (number >= tables.size()) {
    throw std::out_of_range("table " + std::to_string(number) + " of " +
                            std::to_string(tables.size()));
  }
  return tables[number];
}

}  // namespace anabranch::store
