// What the JSON functions throw. Messages name the byte, what was found and what was expected, and
// quote at most 32 bytes of the text, as printable ASCII.
//
// Thread-safety: values.
#pragma once

#include <stdexcept>

namespace anabranch {

// The text is malformed, or is not what the caller said it would be.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A limit was passed. The text may be well-formed.
class JsonTooDeep : public JsonError {
 public:
  using JsonError::JsonError;
};
class JsonTooManyElements : public JsonError {
 public:
  using JsonError::JsonError;
};
class JsonStringTooLong : public JsonError {
 public:
  using JsonError::JsonError;
};

}  // namespace anabranch
