#include <type_traits>

#include "anabranch/json_numbers.h"
#include "json_datatypes.h"
#include "json_runs.h"
#include "json_token.h"

namespace anabranch {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Walks over one array of numbers, nested or not.
template <class T>
class ArrayParser {
 public:
  ArrayParser(std::string_view text, T* values, std::size_t count, std::size_t max_depth)
      : begin_(text.data()),
        end_(text.data() + text.size()),
        at_(text.data()),
        values_(values),
        count_(count),
        max_depth_(max_depth) {}

  void run();

 private:
  std::size_t offset() const { return static_cast<std::size_t>(at_ - begin_); }
  std::string_view left() const { return {at_, static_cast<std::size_t>(end_ - at_)}; }

  // The next byte that is no white space; 0 at the end of the text, as no token starts with 0.
  char peek() {
    while (at_ != end_ && is_space(*at_)) ++at_;
    return at_ != end_ ? *at_ : '\0';
  }
  void open();
  bool take_common_elements();
  void take_element();
  [[noreturn]] void refuse_surplus() const;
  [[noreturn]] void refuse(const char* expected) const {
    throw JsonError("byte " + std::to_string(offset()) + ": expected " + expected + ", found " +
                    json_detail::excerpt(left()));
  }

  const char* const begin_;
  const char* const end_;
  const char* at_;
  T* const values_;
  const std::size_t count_;
  std::size_t found_ = 0;
  const std::size_t max_depth_;
  std::size_t depth_ = 0;
};

template <class T>
void ArrayParser<T>::run() {
  if (peek() != '[') refuse("an array of numbers");
  for (;;) {
    if (!take_common_elements()) {
      if (peek() == '[') {
        open();
        if (peek() != ']') continue;
      } else {
        take_element();
      }
    }
    for (; depth_ > 0 && peek() == ']'; ++at_) --depth_;
    if (depth_ == 0) break;
    if (peek() != ',') refuse("',' or ']'");
    ++at_;
  }
  peek();
  if (at_ != end_) refuse("nothing after the array");
  if (found_ != count_) {
    throw JsonError("expected " + std::to_string(count_) + " elements, found " +
                    std::to_string(found_));
  }
}

template <class T>
void ArrayParser<T>::open() {
  if (depth_ == max_depth_) {
    throw JsonTooDeep("nesting at byte " + std::to_string(offset()) + " is deeper than " +
                      std::to_string(max_depth_));
  }
  ++depth_;
  ++at_;
}

// As many as there are of the kind that is read fast. True: ends behind an element.
template <class T>
bool ArrayParser<T>::take_common_elements() {
  if constexpr (std::is_same_v<T, bool>) {
    return false;
  } else {
    static const json_detail::TakeNumbers<T> take_numbers = json_detail::fastest_run<T>();
    const auto [at, next, behind] = take_numbers(at_, end_, values_ + found_, values_ + count_);
    at_ = at;
    found_ = static_cast<std::size_t>(next - values_);
    return behind;
  }
}

template <class T>
void ArrayParser<T>::take_element() {
  if (found_ == count_) refuse_surplus();
  at_ += json_detail::read_token(left(), found_, offset(), values_[found_]);
  ++found_;
}

template <class T>
void ArrayParser<T>::refuse_surplus() const {
  T surplus;
  json_detail::read_token(left(), found_, offset(), surplus);  // a malformed one is the first fault
  throw JsonError("expected " + std::to_string(count_) + " elements, found more at byte " +
                  std::to_string(offset()));
}

template <class T>
void parse_as(std::string_view text, std::byte* out, std::size_t count, std::size_t max_depth) {
  ArrayParser<T>(text, reinterpret_cast<T*>(out), count, max_depth).run();
}

}  // namespace

AlignedBuffer parse_numbers(std::string_view text, Datatype datatype, std::size_t count,
                            std::size_t max_depth) {
  // Two bytes an element at least, so memory is asked for only where the text may justify it.
  if (count > text.size() / 2) {
    throw JsonError("expected " + std::to_string(count) + " elements, more than " +
                    std::to_string(text.size()) + " bytes of text can hold");
  }
  AlignedBuffer values = AlignedBuffer::uninitialized(count * size_of(datatype));
  json_detail::visit_datatype(
      datatype, [&]<class T>(T) { parse_as<T>(text, values.data(), count, max_depth); });
  return values;
}

}  // namespace anabranch
