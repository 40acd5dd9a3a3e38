// What happened, one line each: calls with what came of them, and operations when they ran.
//
// Thread-safety: the driver's lock is held.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

namespace anabranch::cuda_stub {

class Trace {
 public:
  static constexpr std::size_t kMaxLines = std::size_t{1} << 16;

  // The oldest lines go first where there are too many.
  void add(std::string line) {
    if (lines_.size() == kMaxLines) lines_.pop_front();
    lines_.push_back(std::move(line));
  }
  void clear() { lines_.clear(); }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines_) all.append(line).push_back('\n');
    return all;
  }

 private:
  std::deque<std::string> lines_;
};

}  // namespace anabranch::cuda_stub
