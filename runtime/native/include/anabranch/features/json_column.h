// One feature of a ranking request as JSON text (contracts of `:rank`).
//
// Thread-safety: any thread, one storage each.
#pragma once

#include <string_view>
#include <vector>

#include "anabranch/features/raw_column.h"

namespace anabranch::features {

// Reads the JSON value of one feature. `one_row`: it is a user's, so the value is the row itself;
// else it is an array of rows. A row is a value; an array of `form.width` values where that is not
// 1; where ragged, an array of values or {"ids": [...], "weights": [...]}. `null` is a missing row.
// int64 takes integers and decimal strings, float32 any number and the bare tokens NaN, Infinity
// and -Infinity, string takes strings; nothing is converted otherwise.
//
// Appends a fault for each row that is none, and goes on with the next row. Text that is not JSON,
// or no array where rows were expected, is one fault of the whole column.
// Throws ColumnTooLarge.
RawColumn read_json_column(std::string_view text, const ColumnForm& form, bool one_row,
                           const ColumnLimits& limits, ColumnStorage& storage,
                           std::vector<Fault>& faults);

}  // namespace anabranch::features
