// Values as they are read, into a vector that grows with them and no faster than the text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "anabranch/features/raw_column.h"

namespace anabranch::features {

// The vector has room beyond the values until `finish`.
template <class T>
class GrowingValues {
 public:
  // `limited`: what there may be `limit` of at most, for the message.
  GrowingValues(std::vector<T>& values, std::size_t limit, const char* limited)
      : values_(values), limit_(limit), limited_(limited) {
    values_.clear();
  }

  std::size_t count() const noexcept { return count_; }
  T* next() noexcept { return values_.data() + count_; }
  T* last() noexcept { return values_.data() + values_.size(); }
  bool is_full() const noexcept { return count_ == values_.size(); }

  // Makes room for some more where there is none, up to the limit; `left` bytes of text are left,
  // two a value at least.
  void make_room(std::size_t left) {
    if (!is_full()) return;
    const std::size_t most = std::min(left / 2 + 1, std::max(count_, kFirst));
    values_.resize(std::min(limit_, count_ + most));
  }

  // Counts what was written at `next`.
  void advance(const T* next) noexcept { count_ = static_cast<std::size_t>(next - values_.data()); }

  // Throws ColumnTooLarge.
  void push(const T& value, std::size_t left) {
    make_room(left);
    if (is_full()) refuse();
    values_[count_++] = value;
  }

  // Drops values from `count` on, or appends `value` until there are so many.
  // Throws ColumnTooLarge.
  void resize(std::size_t count, const T& value) {
    if (count > count_) {
      if (count > limit_) refuse();
      if (count > values_.size()) values_.resize(std::min(limit_, std::max(count, 2 * count_)));
      std::fill(values_.data() + count_, values_.data() + count, value);
    }
    count_ = count;
  }

  void finish() { values_.resize(count_); }

 private:
  static constexpr std::size_t kFirst = 1024;

  [[noreturn]] void refuse() const {
    throw ColumnTooLarge("more than " + std::to_string(limit_) + " " + limited_);
  }

  std::vector<T>& values_;
  const std::size_t limit_;
  const char* const limited_;
  std::size_t count_ = 0;
};

}  // namespace anabranch::features
