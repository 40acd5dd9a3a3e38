// From lookup specs to the features that kernels run.
//
// Thread-safety: pure functions.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "store/lookup/kernel.h"

namespace anabranch::store::lookup {

// Columns of users that lie side by side, on their way from the shared rows to those of the batch.
struct Broadcast {
  std::size_t buffer;
  std::size_t offset;  // bytes in an output row
  std::size_t shared;  // bytes in a shared row
  std::size_t bytes;
};

struct Program {
  std::vector<Feature> features;
  std::vector<Broadcast> broadcasts;
  std::size_t shared_stride = 0;  // bytes
  // Rows of missing keys, in the format of their tables.
  std::vector<std::unique_ptr<std::byte[]>> missing_rows;
};

// Throws std::invalid_argument where specs contradict each other or the tables.
Program compile(std::span<const LookupSpec> lookups, std::span<const BufferSpec> buffers,
                std::span<const TableView> tables, const Kernel& kernel);

}  // namespace anabranch::store::lookup
