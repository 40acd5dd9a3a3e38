// Programs out of Python's frozen dataclasses.
//
// Thread-safety: with the GIL.
#pragma once

#include "anabranch/features/program.h"
#include "conversions.h"

// The function of that name. Throws std::invalid_argument where there is none.
anabranch::features::HashFunction hash_function(std::string_view name);

// A program of `features` and `tensors`; see `anabranch_runtime.ranking.native_features`.
// Throws std::invalid_argument where they contradict each other.
anabranch::features::Program to_program(nb::handle features, nb::handle tensors);
