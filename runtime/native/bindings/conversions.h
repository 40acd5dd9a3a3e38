// What every binding file needs: views of Python's memory, and work without the GIL.
//
// Thread-safety: a view is made and dropped with the GIL; what it shows may be read without.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace nb = nanobind;

// Below this a switch of threads costs more than it gives.
inline constexpr std::size_t kReleaseBytes = 4096;

// A readable, contiguous buffer of Python's, held for as long as this lives.
class BufferView {
 public:
  explicit BufferView(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  std::size_t size() const { return static_cast<std::size_t>(view_.len); }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), size()};
  }
  std::string_view text() const { return {static_cast<const char*>(view_.buf), size()}; }

 private:
  Py_buffer view_{};
};

// Calls `work` without the GIL when there is enough of it.
template <class Work>
auto run_on(std::size_t size_bytes, Work&& work) {
  std::optional<nb::gil_scoped_release> released;
  if (size_bytes > kReleaseBytes) released.emplace();
  return work();
}

// Hands on what may lie over much memory. Unmapping takes milliseconds for each 100 MB, for which
// no other thread of Python is to wait: its last owner, whoever that is, lets go of it without the
// GIL.
template <class T>
std::shared_ptr<T> let_go_released(std::shared_ptr<T> owned) {
  T* const value = owned.get();
  return {value, [owned = std::move(owned)](T*) mutable {
            std::optional<nb::gil_scoped_release> released;
            if (PyGILState_Check()) released.emplace();
            owned.reset();
          }};
}

// Calls `work` without the GIL.
template <class Work>
auto run_released(Work&& work) {
  const nb::gil_scoped_release released;
  return work();
}
