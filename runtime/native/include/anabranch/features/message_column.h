// One feature of a ranking request as a serialised `anabranch.v1.Column` (clients/proto).
//
// Thread-safety: any thread, one storage each.
#pragma once

#include <string_view>
#include <vector>

#include "anabranch/features/raw_column.h"

namespace anabranch::features {

// Reads a serialised Column: exactly one of `raw`, `int64s`, `floats`, `strings`, packed or not, of
// the feature's type; `lengths` for ragged features. `one_row`: it is a user's, so all values are
// one row and `lengths` may be left out. Numbers in `raw` are copied only where they are not
// aligned. Unknown fields are skipped, as protobuf does; of a field sent twice the last one counts
// where it is not repeated.
//
// There are no missing rows. Appends faults as `read_json_column` does; bytes that are no message
// are one fault of the whole column. Throws ColumnTooLarge.
RawColumn read_message_column(std::string_view bytes, const ColumnForm& form, bool one_row,
                              const ColumnLimits& limits, ColumnStorage& storage,
                              std::vector<Fault>& faults);

}  // namespace anabranch::features
