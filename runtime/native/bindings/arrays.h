// NumPy arrays as the store takes them: type, shape and alignment checked, memory held.
//
// Thread-safety: an ArrayView is made and dropped with the GIL; its memory may be used without.
// Errors: anabranch::store::Refused, which names the array, what it is and what was expected.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "conversions.h"

// What the numbers of an array are. Bytes of either sign that are not numbers have no name here.
enum class ElementType {
  kBool,
  kInt8,
  kUint8,
  kUint16,
  kInt32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kOther
};

std::string_view to_name(ElementType type) noexcept;

// A strided array of one or two axes, held for as long as this lives; NumPy refuses to resize it
// meanwhile. Every element lies on a multiple of its size.
class ArrayView {
 public:
  // `what` names the array in messages. Throws Refused where it is no array, has other than one or
  // two axes, is not aligned, or is to be written and cannot be.
  ArrayView(std::string what, nb::handle array, bool writable = false);
  ~ArrayView();
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  const std::string& what() const noexcept { return what_; }
  ElementType type() const noexcept { return type_; }
  std::size_t axes() const noexcept { return static_cast<std::size_t>(view_.ndim); }
  std::int64_t extent(std::size_t axis) const noexcept { return view_.shape[axis]; }
  // Elements from one index of the axis to the next.
  std::int64_t stride(std::size_t axis) const noexcept {
    return view_.strides[axis] / view_.itemsize;
  }
  std::size_t size_bytes() const noexcept { return static_cast<std::size_t>(view_.len); }
  // Whether elements lie one after another from `axis` on, to the last axis.
  bool is_contiguous(std::size_t axis = 0) const noexcept;
  void* data() const noexcept { return view_.buf; }
  // Addresses of the first byte and behind the last; equal where there are no elements.
  std::pair<std::uintptr_t, std::uintptr_t> reach() const noexcept;

  // Throw Refused where it is otherwise.
  void expect_type(ElementType expected) const;
  void expect_key_type() const;  // int64 or uint64
  void expect_contiguous(std::size_t axes) const;
  void expect_extent(std::size_t axis, std::int64_t expected) const;

  template <class T>
  std::span<const T> elements() const noexcept {
    return {static_cast<const T*>(view_.buf), size_bytes() / sizeof(T)};
  }

 private:
  std::string what_;
  Py_buffer view_{};
  ElementType type_ = ElementType::kOther;
};

// Contiguous keys; none where `array` is None.
class Keys {
 public:
  explicit Keys(nb::handle array);
  std::span<const std::uint64_t> get() const noexcept {
    return view_ ? view_->elements<std::uint64_t>() : std::span<const std::uint64_t>{};
  }

 private:
  std::optional<ArrayView> view_;
};
