// Damaged messages: no crash, no read past the end, no broken invariant, and one outcome wherever
// in memory the bytes are and however their values are packed.
#include "anabranch/features/message_column.h"
#include "check.h"
#include "column_text.h"
#include "fuzzing.h"
#include "message_bytes.h"

using namespace anabranch::features;
using namespace anabranch::testing;

namespace {

constexpr ColumnLimits kLimits{200, 300, 40};
constexpr std::string_view kAlphabet(
    "\x00\x01\x02\x04\x08\x0A\x12\x18\x1A\x22\x25\x2A\x32\x3A\x4B\x4C\x7F\x80\xFF", 19);

// The same values, packed and raw or one by one, whatever `as` says.
std::string values_of(ValueType type, std::size_t count, unsigned as, Random& random) {
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::int64_t>(random()) >> random() % 64;
    switch (type) {
      case ValueType::kInt64:
        ints.push_back(number);
        if (as == 0) bytes += varint_field(3, static_cast<std::uint64_t>(number));
        break;
      case ValueType::kFloat32:
        floats.push_back(static_cast<float>(number));
        if (as == 0) bytes += tag(4, 5) + bytes_of<float>({floats.back()});
        break;
      case ValueType::kString:
        bytes +=
            bytes_field(5, std::to_string(number) + (random() % 50 == 0 ? "\xFF" : "\xC3\xA9"));
        break;
    }
  }
  if (count == 0 || as == 0 || type == ValueType::kString) return bytes;
  if (type == ValueType::kInt64) return as == 1 ? packed_int64s(ints) : raw_int64s(ints);
  return as == 1 ? packed_floats(floats) : raw_floats(floats);
}

std::string column_of(const ColumnForm& form, bool one_row, unsigned as, Random& random) {
  const std::size_t rows = one_row ? 1 : random() % 40;
  std::size_t count = rows * form.width;
  std::string sides;
  if (form.ragged) {
    count = 0;
    std::vector<std::uint32_t> row_lengths(rows);
    for (auto& length : row_lengths) count += length = random() % 5;
    sides += lengths(row_lengths);
    if (form.weighted) sides += weights(std::vector<float>(count, 0.5F));
  }
  const std::string values = values_of(form.type, count, as, random);
  return random() % 2 == 0 ? values + sides : sides + values;
}

std::string outcome(std::string_view bytes, const ColumnForm& form, bool one_row,
                    std::size_t misaligned) {
  const ExactBytes exact(bytes, misaligned);
  ColumnStorage storage;
  std::vector<Fault> faults;
  try {
    const RawColumn column =
        read_message_column(exact.view(), form, one_row, kLimits, storage, faults);
    const std::string problem = broken(column, form, faults);
    if (!problem.empty()) fail(__FILE__, __LINE__, problem);
    return text_of(column, faults);
  } catch (const ColumnTooLarge& refusal) {
    return refusal.what();
  }
}

}  // namespace

TEST(damaged_messages_have_one_outcome_and_harm_nothing) {
  std::size_t accepted = 0;
  const std::size_t rounds = fuzz([&](Random& random) {
    const ColumnForm form = random_form(random);
    const bool one_row = random() % 4 == 0;
    std::string bytes = column_of(form, one_row, static_cast<unsigned>(random() % 3), random);
    if (random() % 2 == 0) mutate(bytes, kAlphabet, random);
    const std::string found = outcome(bytes, form, one_row, 0);
    accepted += found.find("whole: ") == std::string::npos;
    CHECK_EQ(outcome(bytes, form, one_row, 1), found);
    CHECK_EQ(outcome(bytes, form, one_row, 4), found);
    // Nothing that is unknown changes anything.
    const std::string padded = bytes_field(900, "x") + bytes;
    CHECK_EQ(outcome(padded, form, one_row, 0), found);
  });
  std::printf("%zu messages, %zu accepted\n", rounds, accepted);
  CHECK(accepted > rounds / 4);
}

TEST(values_are_the_same_in_every_encoding) {
  fuzz([](Random& random) {
    const ColumnForm form = random_form(random);
    const bool one_row = random() % 4 == 0;
    Random copies[] = {random, random, random};
    std::string texts[3];
    for (unsigned as = 0; as < 3; ++as) {
      texts[as] = outcome(column_of(form, one_row, as, copies[as]), form, one_row, 0);
    }
    CHECK_EQ(texts[0], texts[1]);
    CHECK_EQ(texts[0], texts[2]);
  });
}

int main() { return run_tests(); }
