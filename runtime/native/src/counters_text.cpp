#include "counters_text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "counters_layout.h"

namespace anabranch::counters_layout {
namespace {

constexpr std::size_t kCountsBytes = 8;  // number of bounds, number of labels

std::string quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

// Metric and label names as Prometheus has them; only metrics may have a colon.
bool is_name(std::string_view text, bool colon_allowed) {
  const auto is_letter = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c == ':' && colon_allowed);
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_digit(c); });
}

void check_bounds(std::span<const double> bounds) {
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (!std::isfinite(bounds[i]) || (i > 0 && !(bounds[i - 1] < bounds[i]))) {
      throw std::invalid_argument("histogram bounds must be finite and ascending");
    }
  }
}

// Takes values off the front of a text; once it runs short, everything it gives is empty.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : left_(text) {}

  std::uint32_t count() {
    std::uint32_t value = 0;
    const std::string_view bytes = take(sizeof value);
    if (intact_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view take(std::size_t size) {
    if (!intact_ || size > left_.size()) {
      intact_ = false;
      return {};
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  std::string string() { return std::string(take(count())); }

  bool intact() const { return intact_; }
  bool finished() const { return intact_ && left_.empty(); }

 private:
  std::string_view left_;
  bool intact_ = true;
};

}  // namespace

RecordText::RecordText(std::string_view name, std::vector<Label> labels,
                       std::span<const double> bounds)
    : identity_offset_(kCountsBytes + bounds.size_bytes()) {
  if (!is_name(name, true)) throw std::invalid_argument(quoted(name) + " is no metric name");
  check_bounds(bounds);
  std::ranges::sort(labels);
  append_count(bounds.size());
  append_count(labels.size());
  bytes_.append(reinterpret_cast<const char*>(bounds.data()), bounds.size_bytes());
  append_string(name);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto& [key, value] = labels[i];
    if (!is_name(key, false)) throw std::invalid_argument(quoted(key) + " is no label name");
    if (i > 0 && labels[i - 1].first == key) {
      throw std::invalid_argument("label " + quoted(key) + " is given twice");
    }
    append_string(key);
    append_string(value);
  }
}

std::string_view RecordText::bound_bytes() const {
  return bytes().substr(kCountsBytes, identity_offset_ - kCountsBytes);
}

std::string_view RecordText::identity() const { return bytes().substr(identity_offset_); }

std::string_view RecordText::name_of(std::string_view identity) {
  TextReader reader(identity);
  return reader.take(reader.count());
}

void RecordText::append_count(std::size_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("the description of a series is too long");
  }
  const auto narrow = static_cast<std::uint32_t>(value);
  bytes_.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
}

void RecordText::append_string(std::string_view text) {
  append_count(text.size());
  bytes_.append(text);
}

bool read_text(std::string_view text, Series& series) {
  TextReader reader(text);
  const std::size_t bounds = reader.count();
  const std::size_t labels = reader.count();
  const std::string_view bound_bytes = reader.take(bounds * sizeof(double));
  if (!reader.intact()) return false;
  series.bounds.resize(bounds);
  if (bounds > 0) std::memcpy(series.bounds.data(), bound_bytes.data(), bound_bytes.size());
  series.name = reader.string();
  for (std::size_t i = 0; i < labels && reader.intact(); ++i) {
    std::string key = reader.string();
    series.labels.emplace_back(std::move(key), reader.string());
  }
  return reader.finished();
}

std::size_t value_words(SeriesKind kind, std::size_t bounds) {
  switch (kind) {
    case SeriesKind::kCounter:
      return kCounterWords;
    case SeriesKind::kGauge:
      return kGaugeWords;
    case SeriesKind::kHistogram:
      break;
  }
  return bounds + 2;
}

}  // namespace anabranch::counters_layout
