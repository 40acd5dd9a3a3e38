// The block pipeline: three stages, each a tight loop, over blocks that overlap.
//
// While a block is pooled, the rows of the next are on their way from memory, and the index lines
// of the one after that. Source: see anabranch/store/lookup.h. Included by the kernels alone; see
// kernel.h on the unnamed namespace.
#pragma once

#include "store/lookup/filling.h"
#include "store/lookup/finishing.h"
#include "store/lookup/pooling.h"
#include "store/lookup/probing.h"

namespace anabranch::store::lookup {
namespace {

Refusal run_pipeline(const Run& run) noexcept {
  Block blocks[3];
  Block* filled = &blocks[0];
  Block* probed = &blocks[1];
  Block* finished = &blocks[2];
  Filling filling(run);
  Probing probing(run);
  Finishing finishing(run);
  Refusal refusal;
  do {
    if (!filling.fill(*filled, refusal) || !probing.probe(*probed, refusal)) return refusal;
    finishing.finish(*finished);
    if (!probing.probe_late(*probed, refusal)) return refusal;
    Block* const empty = finished;
    finished = probed;
    probed = filled;
    filled = empty;
  } while (probed->ids != 0 || finished->ids != 0);
  finishing.close();
  return refusal;
}

}  // namespace
}  // namespace anabranch::store::lookup
