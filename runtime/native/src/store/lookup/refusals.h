// Words for why a run was refused.
//
// Thread-safety: a pure function.
#pragma once

#include <string>

#include "store/lookup/kernel.h"

namespace anabranch::store::lookup {

// Names feature, row and value, and what to do.
std::string describe(const Refusal& refusal, const LookupSpec& spec, const FeatureInput& input,
                     const TableView& table);

}  // namespace anabranch::store::lookup
