#include "arrays.h"

#include <utility>

#include "anabranch/store/errors.h"

using anabranch::store::Refused;

namespace {

// The type that a buffer's format string names (the letters of Python's `struct`).
ElementType parse_type(const char* format, Py_ssize_t size_bytes) {
  std::string_view letters = format == nullptr ? "B" : format;
  if (letters.size() == 2 && (letters[0] == '<' || letters[0] == '=' || letters[0] == '@')) {
    letters.remove_prefix(1);
  }
  if (letters.size() != 1) return ElementType::kOther;
  switch (letters[0]) {
    case '?':
      return ElementType::kBool;
    case 'b':
      return ElementType::kInt8;
    case 'B':
      return ElementType::kUint8;
    case 'H':
      return ElementType::kUint16;
    case 'i':
    case 'l':
    case 'q':
      if (size_bytes == 4) return ElementType::kInt32;
      return size_bytes == 8 ? ElementType::kInt64 : ElementType::kOther;
    case 'L':
    case 'Q':
      return size_bytes == 8 ? ElementType::kUint64 : ElementType::kOther;
    case 'e':
      return ElementType::kFloat16;
    case 'f':
      return ElementType::kFloat32;
    case 'd':
      return ElementType::kFloat64;
    default:
      return ElementType::kOther;
  }
}

}  // namespace

std::string_view to_name(ElementType type) noexcept {
  switch (type) {
    case ElementType::kBool:
      return "bool";
    case ElementType::kInt8:
      return "int8";
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kUint16:
      return "uint16";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kUint64:
      return "uint64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kOther:
      break;
  }
  return "another type";
}

ArrayView::ArrayView(std::string what, nb::handle array, bool writable) : what_(std::move(what)) {
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) {
    PyErr_Clear();
    throw Refused(what_ + ": expected " + (writable ? "an array that can be written" : "an array"));
  }
  type_ = parse_type(view_.format, view_.itemsize);
  const auto refuse = [&](const char* expected) {
    PyBuffer_Release(&view_);
    throw Refused(what_ + ": expected " + expected);
  };
  if (view_.ndim < 1 || view_.ndim > 2) refuse("one or two axes");
  if (view_.itemsize < 1) refuse("numbers");
  bool aligned =
      reinterpret_cast<std::uintptr_t>(view_.buf) % static_cast<std::size_t>(view_.itemsize) == 0;
  for (int axis = 0; axis < view_.ndim; ++axis) {
    aligned = aligned && (view_.shape[axis] < 2 || view_.strides[axis] % view_.itemsize == 0);
  }
  if (!aligned) refuse("elements on multiples of their size; copy the array");
}

ArrayView::~ArrayView() { PyBuffer_Release(&view_); }

bool ArrayView::is_contiguous(std::size_t axis) const noexcept {
  std::int64_t elements = 1;
  for (std::size_t i = axes(); i-- > axis;) {
    if (extent(i) > 1 && stride(i) != elements) return false;
    elements *= extent(i);
  }
  return true;
}

std::pair<std::uintptr_t, std::uintptr_t> ArrayView::reach() const noexcept {
  auto begin = reinterpret_cast<std::uintptr_t>(view_.buf);
  if (view_.len == 0) return {begin, begin};
  std::uintptr_t end = begin + static_cast<std::uintptr_t>(view_.itemsize);
  for (std::size_t axis = 0; axis < axes(); ++axis) {
    const std::int64_t span = view_.strides[axis] * (extent(axis) - 1);
    (span < 0 ? begin : end) += static_cast<std::uintptr_t>(span);
  }
  return {begin, end};
}

void ArrayView::expect_type(ElementType expected) const {
  if (type_ == expected) return;
  throw Refused(what_ + ": expected " + std::string(to_name(expected)) + ", got " +
                std::string(to_name(type_)));
}

void ArrayView::expect_key_type() const {
  if (type_ == ElementType::kInt64 || type_ == ElementType::kUint64) return;
  throw Refused(what_ + ": expected int64 or uint64, got " + std::string(to_name(type_)));
}

void ArrayView::expect_contiguous(std::size_t expected_axes) const {
  if (axes() != expected_axes) {
    throw Refused(what_ + ": expected " + std::to_string(expected_axes) + " axes, got " +
                  std::to_string(axes()));
  }
  if (!is_contiguous()) throw Refused(what_ + ": expected contiguous elements; copy the array");
}

void ArrayView::expect_extent(std::size_t axis, std::int64_t expected) const {
  if (extent(axis) == expected) return;
  throw Refused(what_ + ": expected " + std::to_string(expected) + " on axis " +
                std::to_string(axis) + ", got " + std::to_string(extent(axis)));
}

Keys::Keys(nb::handle array) {
  if (array.is_none()) return;
  view_.emplace("keys", array);
  view_->expect_key_type();
  view_->expect_contiguous(1);
}
