// Arrays of numbers as JSON text: the tensors of the Open Inference Protocol's JSON form.
//
// Thread-safety: every function may be called from any thread; the text must not change meanwhile
// (if it does, the numbers are undefined and nothing else is).
// Invariants: a decimal number becomes the nearest value of the target type, rounded once, ties to
// even. No reading outside the text, no recursion, no allocation that the text does not justify.
//
// Grammar: RFC 8259, plus the bare tokens NaN, Infinity and -Infinity that Triton and TF Serving
// write. A number without counterpart in the target type is refused, never clipped: 300 as UINT8,
// 1.5 as INT32, 1e39 as FP32. Underflow is not an error: 1e-99 as FP32 is 0.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "anabranch/aligned_buffer.h"
#include "anabranch/json_errors.h"

namespace anabranch {

enum class Datatype {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFp32,
  kFp64
};

// By its protocol name, "FP32" for one; nothing for a name with no JSON numbers.
std::optional<Datatype> datatype_named(std::string_view name) noexcept;
std::string_view name_of(Datatype datatype) noexcept;
std::size_t size_of(Datatype datatype) noexcept;

// The numbers of the one JSON value that `text` is: an array of numbers (for BOOL of true, false, 0
// and 1), or arrays of such arrays to any shape, flattened in the order of the text.
// Throws JsonError, also when there are not exactly `count` of them, and JsonTooDeep when arrays
// are nested more than `max_depth` deep.
AlignedBuffer parse_numbers(std::string_view text, Datatype datatype, std::size_t count,
                            std::size_t max_depth);

// The flat JSON array of `values`, whose size is a multiple of the datatype's. Floats are written
// as the shortest text that reads back as the same value of their own type, always with a point or
// an exponent; the other tokens are NaN, Infinity and -Infinity. `values` may start at any address.
std::string dump_numbers(Datatype datatype, std::span<const std::byte> values);

}  // namespace anabranch
