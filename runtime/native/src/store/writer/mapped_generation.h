// A generation whose memory is mapped here; in the writer's process, mapped for writing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "anabranch/store/generation.h"
#include "store/writer/generation_layout.h"
#include "store/writer/mapped_region.h"

namespace anabranch::store {

class MappedGeneration final : public Generation {
 public:
  // `records` were checked, or are the writer's own.
  MappedGeneration(std::shared_ptr<const Segment> segment,
                   std::shared_ptr<const MappedRegion> region, std::span<const TableRecord> records)
      : Generation(segment, views_of(*segment, *region, records), region->size()),
        region_(std::move(region)) {}

 private:
  static std::vector<TableView> views_of(const Segment& segment, const MappedRegion& region,
                                         std::span<const TableRecord> records) {
    std::vector<TableView> views;
    views.reserve(records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      views.push_back(view_of(segment, i, records[i], region.data()));
    }
    return views;
  }

  std::shared_ptr<const MappedRegion> region_;
};

}  // namespace anabranch::store
