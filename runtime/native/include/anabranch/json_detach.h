// Takes the number arrays out of a JSON document, so that a decoder of documents sees only the
// rest: it need not walk over megabytes of digits, nor know the bare NaN that strict JSON lacks.
//
// Thread-safety: may be called from any thread.
// Invariants: the document that is left is well-formed, and all arrays taken out are, exactly when
// the given one was (bare tokens aside): nothing malformed is hidden by being taken out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "anabranch/json_errors.h"

namespace anabranch {

struct DetachedNumbers {
  std::string document;                  // in the place of array i it has [i]
  std::vector<std::string_view> arrays;  // views of the given text, in its order
};

// Takes out every array that is the value of a member named `key` and holds neither strings nor
// objects. A name written with escapes is not recognised, and `key` must need none.
// Throws JsonTooManyElements when there are more than `max_arrays`.
DetachedNumbers detach_numbers(std::string_view text, std::string_view key, std::size_t max_arrays);

}  // namespace anabranch
