// The writer's state, which a change and a growth keep alive too.
//
// Thread-safety: one thread; `memory` and `generation` never change, `version` may be read by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anabranch/store/writer.h"
#include "sealed_memory.h"
#include "store/writer/generation_layout.h"
#include "store/writer/mapped_region.h"
#include "store/writer/table_books.h"

namespace anabranch::store {

// Keys that were changed while a growth copies, by table.
using ChangedKeys = std::vector<std::vector<std::uint64_t>>;

struct WriterCore {
  // Shared memory for `segment`, with no key in any index. Throws as StoreWriter::create does.
  WriterCore(std::shared_ptr<const Segment> segment, std::span<const Capacity> capacities,
             std::uint32_t version);

  // Writes the header and makes huge pages; from here on readers may come.
  void publish();

  TableBooks& table(std::size_t number);  // throws std::out_of_range

  std::shared_ptr<const Segment> segment;
  GenerationLayout layout;
  SealedMemory memory;
  std::shared_ptr<const MappedRegion> region;
  std::vector<TableBooks> tables;
  std::shared_ptr<const Generation> generation;  // null until published
  std::atomic<std::uint32_t> version;
  std::uint32_t floor;  // no version below it is retained
  bool change_open = false;
  bool succeeded = false;                     // a growth was finished: a new writer goes on
  std::shared_ptr<ChangedKeys> changed_keys;  // while a growth copies
};

// A writer over a published core.
std::unique_ptr<StoreWriter> make_writer(std::shared_ptr<WriterCore> core);
// A growth of `core`; no other is under way.
std::unique_ptr<StoreWriter::Growth> make_growth(std::shared_ptr<WriterCore> core,
                                                 std::span<const Capacity> capacities);

}  // namespace anabranch::store
