// What a series is, apart from its values: the text of a record (docs/formats.md, "Counters page").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anabranch/counters_reader.h"

namespace anabranch::counters_layout {

class RecordText {
 public:
  // Throws std::invalid_argument for names, labels or bounds that no series may have.
  RecordText(std::string_view name, std::vector<Label> labels, std::span<const double> bounds);

  std::string_view bytes() const { return bytes_; }
  std::string_view bound_bytes() const;
  // Name and labels: equal for the same series, whatever its bounds.
  std::string_view identity() const;

  // The name at the start of an identity.
  static std::string_view name_of(std::string_view identity);

 private:
  void append_count(std::size_t value);
  void append_string(std::string_view text);

  std::string bytes_;
  std::size_t identity_offset_;
};

// Fills name, labels and bounds from the text of a record. False: the text is damaged.
bool read_text(std::string_view text, Series& series);

// Words that the values of a series take.
std::size_t value_words(SeriesKind kind, std::size_t bounds);

}  // namespace anabranch::counters_layout
