// One feature of a program, made ready: from a column as it was read to what goes to its sinks.
//
// Thread-safety: immutable once made; each call needs a workspace of its own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "anabranch/features/feature.h"
#include "anabranch/features/program.h"
#include "features/number_ranges.h"
#include "features/sinks.h"
#include "features/transforms.h"
#include "features/workspace.h"

namespace anabranch::features {

class FeatureWork {
 public:
  // Keeps references to both, which were checked together and stay where they are.
  // Throws std::invalid_argument where the default is at fault.
  FeatureWork(const Feature& feature, std::span<const Tensor> tensors);

  const Feature& feature() const noexcept { return *feature_; }

  // What becomes of `column`, of which `workspace.faults` are known. Adds other faults to them, at
  // most one of each row, and sorts them by row. The answer is a view of `workspace`.
  MadeRows make(const RawColumn& column, Workspace& workspace, FeatureCounts& counts) const;
  // What becomes of rows that were left out: the default stands in; or of which nothing can be
  // used, because the column is at fault.
  MadeRows stand_ins(std::size_t rows, bool at_fault, Workspace& workspace,
                     FeatureCounts& counts) const;

 private:
  void transform(const RawColumn& column, Workspace& workspace, FeatureCounts& counts) const;
  // Finds values that have no id, or that their tensor does not hold. Whether there were some.
  bool find_faults(const RawColumn& column, Workspace& workspace) const;
  void find_out_of_range(Workspace& workspace, bool& found) const;
  void recount(const RawColumn& column, Workspace& workspace, FeatureCounts& counts) const;
  MadeRows assemble(Workspace& workspace, FeatureCounts& counts) const;
  void make_stand_in();

  const Feature* feature_;
  std::span<const Tensor> tensors_;
  RunnableTransform transform_;
  MadeForm form_;
  std::vector<NumberRange> ranges_;  // what the tensor of each key holds
  bool to_half_ = false;             // floats go to a tensor of FP16
  MadeValues stand_in_;              // one row: the default, or zeros
  std::size_t stand_in_values_ = 0;
  FeatureCounts stand_in_counts_;
};

}  // namespace anabranch::features
