// What the module takes from the binding of features.
#pragma once

#include "conversions.h"

void bind_features(nb::module_& m);
