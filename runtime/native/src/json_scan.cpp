#include "anabranch/json_scan.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "json_block.h"

namespace anabranch {
namespace {

// Bit i: an odd number of bits 0..i is set.
std::uint64_t prefix_xor(std::uint64_t bits) noexcept {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

std::size_t count_bits(std::uint64_t bits) noexcept {
  return static_cast<std::size_t>(std::popcount(bits));
}

// The place of the lowest bit.
std::size_t first_bit(std::uint64_t bits) noexcept {
  return static_cast<std::size_t>(std::countr_zero(bits));
}

// The state between two blocks of 64 bytes.
class Scanner {
 public:
  explicit Scanner(const JsonLimits& limits) : limits_(limits) {}

  void take(const char* block, std::size_t offset);
  void finish(std::size_t offset);

 private:
  std::uint64_t unescaped_quotes(std::uint64_t quotes, std::uint64_t backslashes) noexcept;
  void check_strings(std::uint64_t quotes, std::size_t offset);
  void check_string(std::size_t end);
  void check_depth(std::uint64_t opens, std::uint64_t closes, std::size_t offset);

  const JsonLimits limits_;
  bool escaped_ = false;          // the next byte follows an unpaired backslash
  bool in_string_ = false;        // the next byte is inside a string
  std::size_t string_begin_ = 0;  // of the open string
  std::size_t depth_ = 0;
  std::size_t elements_ = 0;
};

void Scanner::take(const char* block, std::size_t offset) {
  const JsonBlock found = classify_json_block(block);
  const std::uint64_t quotes = unescaped_quotes(found.quotes, found.backslashes);
  const std::uint64_t outside = ~(prefix_xor(quotes) ^ (in_string_ ? ~std::uint64_t{0} : 0));
  check_strings(quotes, offset);

  const std::uint64_t opens = found.opens & outside;
  elements_ += count_bits(opens) + count_bits(found.commas & outside);
  if (elements_ > limits_.max_elements) {
    throw JsonTooManyElements("more than " + std::to_string(limits_.max_elements) +
                              " elements before byte " + std::to_string(offset + 64));
  }
  check_depth(opens, found.closes & outside, offset);
}

void Scanner::finish(std::size_t offset) {
  if (in_string_) check_string(offset);
}

// Quotes that open or close a string: those not after an odd run of backslashes.
std::uint64_t Scanner::unescaped_quotes(std::uint64_t quotes, std::uint64_t backslashes) noexcept {
  if (backslashes == 0) {
    quotes &= ~std::uint64_t{escaped_};
    escaped_ = false;
    return quotes;
  }
  std::uint64_t escaped = escaped_;
  backslashes &= ~escaped;
  while (backslashes != 0) {
    const int at = std::countr_zero(backslashes);
    if (at == 63) {
      escaped_ = true;
      return quotes & ~escaped;
    }
    escaped |= std::uint64_t{2} << at;
    backslashes &= ~(std::uint64_t{3} << at);
  }
  escaped_ = false;
  return quotes & ~escaped;
}

void Scanner::check_strings(std::uint64_t quotes, std::size_t offset) {
  for (; quotes != 0; quotes &= quotes - 1) {
    const std::size_t at = offset + first_bit(quotes);
    if (in_string_) {
      check_string(at);
    } else {
      string_begin_ = at + 1;
    }
    in_string_ = !in_string_;
  }
}

void Scanner::check_string(std::size_t end) {
  if (end - string_begin_ > limits_.max_string_bytes) {
    throw JsonStringTooLong("string at byte " + std::to_string(string_begin_) + " has more than " +
                            std::to_string(limits_.max_string_bytes) + " bytes");
  }
}

void Scanner::check_depth(std::uint64_t opens, std::uint64_t closes, std::size_t offset) {
  const std::size_t opened = count_bits(opens);
  const std::size_t closed = count_bits(closes);
  if (depth_ + opened <= limits_.max_depth && closed <= depth_ + opened) {
    depth_ = depth_ + opened - closed;
    return;
  }
  for (std::uint64_t both = opens | closes; both != 0; both &= both - 1) {
    const std::uint64_t bit = both & (~both + 1);
    if ((closes & bit) != 0) {
      if (depth_ > 0) --depth_;
    } else if (++depth_ > limits_.max_depth) {
      throw JsonTooDeep("nesting at byte " + std::to_string(offset + first_bit(bit)) +
                        " is deeper than " + std::to_string(limits_.max_depth));
    }
  }
}

}  // namespace

void scan_json(std::string_view text, const JsonLimits& limits) {
  Scanner scanner(limits);
  std::size_t offset = 0;
  for (; text.size() - offset >= 64; offset += 64) scanner.take(text.data() + offset, offset);
  if (offset < text.size()) {
    char last[64];
    std::memset(last, ' ', sizeof last);
    std::memcpy(last, text.data() + offset, text.size() - offset);
    scanner.take(last, offset);
  }
  scanner.finish(text.size());
}

}  // namespace anabranch
