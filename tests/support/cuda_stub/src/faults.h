// Which calls are to fail, and how many calls there were.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda_header.h"

namespace anabranch::cuda_stub {

struct Fault {
  std::string entry_point;  // empty: any
  std::uint64_t nth;        // 1: the next call
  std::uint64_t times;      // so many calls from the nth on
  CUresult error;
  bool sticky;  // the device is lost with it
};

class Faults {
 public:
  void add(Fault fault) { pending_.push_back(std::move(fault)); }
  void clear() { pending_.clear(); }

  // Counts a call and returns what is to become of it: null, or a fault, valid until the next call.
  const Fault* on_call(const std::string& entry_point);

  // Returns how often an entry point was called; all of them together for an empty name.
  std::uint64_t calls(const std::string& entry_point) const;

 private:
  std::vector<Fault> pending_;
  Fault hit_;
  std::map<std::string, std::uint64_t> calls_;
  std::uint64_t all_calls_ = 0;
};

}  // namespace anabranch::cuda_stub
