// Whether features and tensors of a program go together.
#pragma once

#include <span>

#include "anabranch/features/feature.h"

namespace anabranch::features {

// Throws std::invalid_argument, naming the feature or tensor, where they contradict each other.
// Defaults are looked at for their number of values only.
void check_program(std::span<const Feature> features, std::span<const Tensor> tensors);

}  // namespace anabranch::features
