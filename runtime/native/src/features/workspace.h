// Memory that a run needs beside its outputs, used again by the next run of a thread.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "anabranch/features/raw_column.h"
#include "features/made_values.h"
#include "features/selection.h"
#include "features/transforms.h"

namespace anabranch::features {

struct Workspace {
  ColumnStorage storage;
  std::vector<Fault> faults;
  Selection selection;
  MadeValues made;
  MadeValues spare;
  std::vector<std::uint32_t> lengths;
  std::vector<Unfit> unfit;

  // That of the calling thread.
  static Workspace& of_thread();
  // Gives back what only an unusually large request needs.
  void trim();
};

}  // namespace anabranch::features
