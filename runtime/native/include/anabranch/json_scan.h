// The limits of a JSON document, checked in one pass before anything is allocated for it.
//
// Thread-safety: may be called from any thread.
// Invariants: no allocation, no recursion, constant memory; a document that passes cannot make a
// decoder exceed the limits, whether or not it is well-formed, because a decoder stops at the
// first fault. Whether it is well-formed is for the decoder to say.
#pragma once

#include <cstddef>
#include <string_view>

#include "anabranch/json_errors.h"

namespace anabranch {

struct JsonLimits {
  std::size_t max_depth;         // arrays and objects inside each other
  std::size_t max_elements;      // values in arrays and members of objects, all together; an empty
                                 // array or object counts as if it had one
  std::size_t max_string_bytes;  // between the quotes of a string or key, escapes as written
};

// Throws JsonTooDeep, JsonTooManyElements or JsonStringTooLong.
void scan_json(std::string_view text, const JsonLimits& limits);

}  // namespace anabranch
