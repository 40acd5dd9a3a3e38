// What can go wrong with an embedding store, by who can act.
//
// Messages name the section, table or feature, the values, and the remedy; never a path and never a
// name of shared memory.
#pragma once

#include <stdexcept>

namespace anabranch::store {

// A file or shared memory is truncated, bit-flipped, or contradicts itself.
class Damaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A file is sound, but of a newer format or another byte order.
class Foreign : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A change does not fit into what was reserved: a new generation is needed.
class StoreFull : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's data is not what it should be: duplicate keys, a row number that is out of range,
// numbers that are not finite, a bag whose offsets fall. The request or the delta is refused.
class Refused : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace anabranch::store
