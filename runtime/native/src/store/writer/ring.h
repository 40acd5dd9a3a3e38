// A queue in one block of memory that grows and never shrinks.
//
// Thread-safety: none. Invariant: `push` within what was reserved neither allocates nor fails.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace anabranch::store {

template <class T>
class Ring {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return cells_.size(); }
  const T& operator[](std::size_t i) const noexcept { return cells_[(first_ + i) & mask()]; }
  const T& front() const noexcept { return cells_[first_]; }

  // Room for `more` elements behind those that are there.
  void reserve(std::size_t more) {
    if (size_ + more <= cells_.size()) return;
    std::vector<T> grown(std::bit_ceil(size_ + more));
    for (std::size_t i = 0; i < size_; ++i) grown[i] = (*this)[i];
    cells_ = std::move(grown);
    first_ = 0;
  }
  void push(const T& value) noexcept {
    cells_[(first_ + size_) & mask()] = value;
    ++size_;
  }
  void pop() noexcept {
    first_ = (first_ + 1) & mask();
    --size_;
  }

 private:
  std::size_t mask() const noexcept { return cells_.size() - 1; }

  std::vector<T> cells_;  // their number is a power of two
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

// As std::vector::reserve, but repeated calls stay linear.
template <class T>
void reserve_more(std::vector<T>& items, std::size_t more) {
  const std::size_t needed = items.size() + more;
  if (needed > items.capacity()) items.reserve(std::max(needed, 2 * items.capacity()));
}

}  // namespace anabranch::store
