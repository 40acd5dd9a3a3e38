#include "features/made_values.h"

#include <algorithm>

namespace anabranch::features {
namespace {

template <class T>
void grow(std::vector<T>& list, std::size_t count) {
  if (list.size() < count) list.resize(count);
}

template <class T>
void copy_entries(const std::vector<T>& source, std::vector<T>& target, std::size_t from,
                  std::size_t to, std::size_t count) {
  std::copy_n(source.data() + from, count, target.data() + to);
}

}  // namespace

void MadeValues::reserve(const MadeForm& form, std::size_t count) {
  if (form.content == MadeForm::Content::kIds) {
    grow(ids, form.keys);
    for (std::size_t key = 0; key < form.keys; ++key) grow(ids[key], count);
  } else if (form.content == MadeForm::Content::kFloats) {
    grow(floats, count);
  } else {
    grow(strings, count);
  }
  if (form.weighted) grow(weights, count);
}

void MadeValues::copy(const MadeForm& form, const MadeValues& other, std::size_t from,
                      std::size_t to, std::size_t count) {
  if (count == 0) return;
  if (form.content == MadeForm::Content::kIds) {
    for (std::size_t key = 0; key < form.keys; ++key) {
      copy_entries(other.ids[key], ids[key], from, to, count);
    }
  } else if (form.content == MadeForm::Content::kFloats) {
    copy_entries(other.floats, floats, from, to, count);
  } else {
    copy_entries(other.strings, strings, from, to, count);
  }
  if (form.weighted) copy_entries(other.weights, weights, from, to, count);
}

std::size_t MadeValues::capacity_bytes() const noexcept {
  std::size_t bytes = floats.capacity() * sizeof(float) + weights.capacity() * sizeof(float) +
                      strings.capacity() * sizeof(std::string_view);
  for (const auto& list : ids) bytes += list.capacity() * sizeof(std::int64_t);
  return bytes;
}

}  // namespace anabranch::features
