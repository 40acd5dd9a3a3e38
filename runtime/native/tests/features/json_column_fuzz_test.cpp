// Damaged columns in JSON: no crash, no read past the end, no broken invariant, and one outcome
// whatever white space sends which value down which path.
#include "anabranch/features/json_column.h"
#include "check.h"
#include "column_text.h"
#include "fuzzing.h"

using namespace anabranch::features;
using namespace anabranch::testing;

namespace {

constexpr ColumnLimits kLimits{200, 300, 40};
constexpr std::string_view kAlphabet = "[]{},:\"\\+-.eE0123456789NaInfityul \n\x01\x80\xC3\xED\xFF";

std::string value_of(ValueType type, Random& random) {
  static const char* const odd[] = {"null",
                                    "true",
                                    "NaN",
                                    "-Infinity",
                                    "1e39",
                                    "0.1",
                                    "\"7\"",
                                    "\"-9\"",
                                    "\"\\ud83d\\ude00\"",
                                    "\"\\n\"",
                                    "\"\"",
                                    "[]",
                                    "{}",
                                    "[1,[2]]",
                                    "9223372036854775808",
                                    "1e-50",
                                    "-0",
                                    "\"\xC3\xA9\"",
                                    "123456789012345678901234567890",
                                    "{\"ids\":[]}"};
  if (random() % 12 == 0) return odd[random() % std::size(odd)];
  const auto number = static_cast<std::int64_t>(random()) >> random() % 64;
  switch (type) {
    case ValueType::kInt64:
      return std::to_string(number);
    case ValueType::kFloat32:
      return std::to_string(static_cast<double>(number % 100000) / 64);
    case ValueType::kString:
      break;
  }
  return '"' + std::to_string(number) + std::string(random() % 20, 'x') + '"';
}

std::string array_of(ValueType type, std::size_t count, Random& random) {
  std::string text = "[";
  for (std::size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + value_of(type, random);
  return text + "]";
}

std::string row_of(const ColumnForm& form, Random& random) {
  if (random() % 20 == 0) return value_of(form.type, random);
  if (!form.ragged) {
    return form.width == 1 ? value_of(form.type, random) : array_of(form.type, form.width, random);
  }
  const std::size_t count = random() % 5;
  const std::string ids = array_of(form.type, count, random);
  if (random() % 2 == 0) return ids;
  if (random() % 2 == 0) return "{\"ids\":" + ids + "}";
  return "{\"ids\":" + ids + ",\"weights\":" + array_of(ValueType::kFloat32, count, random) + "}";
}

std::string column_of(const ColumnForm& form, Random& random) {
  std::string text = "[";
  const std::size_t rows = random() % 60;
  for (std::size_t i = 0; i < rows; ++i) text += (i > 0 ? "," : "") + row_of(form, random);
  return text + "]";
}

// Two spaces behind every comma outside strings: nothing is read in runs.
std::string spaced(std::string_view text) {
  std::string result;
  bool in_string = false;
  bool is_escaped = false;
  for (const char c : text) {
    result += c;
    if (in_string) {
      in_string = is_escaped || c != '"';
      is_escaped = !is_escaped && c == '\\';
    } else {
      in_string = c == '"';
      if (c == ',') result += "  ";
    }
  }
  return result;
}

constexpr std::string_view kWhole = "rows 0: | whole: expected ";

std::string outcome(std::string_view text, const ColumnForm& form, bool one_row) {
  const ExactBytes exact(text);
  ColumnStorage storage;
  std::vector<Fault> faults;
  try {
    const RawColumn column =
        read_json_column(exact.view(), form, one_row, kLimits, storage, faults);
    const std::string problem = broken(column, form, faults);
    if (!problem.empty()) fail(__FILE__, __LINE__, problem + ": " + std::string(text));
    const std::string result = text_of(column, faults);
    return result.starts_with(kWhole) ? std::string(kWhole) : result;  // its place differs
  } catch (const ColumnTooLarge& refusal) {
    return refusal.what();
  }
}

}  // namespace

TEST(damaged_columns_have_one_outcome_and_harm_nothing) {
  std::size_t accepted = 0;
  const std::size_t rounds = fuzz([&](Random& random) {
    const ColumnForm form = random_form(random);
    const bool one_row = random() % 4 == 0;
    std::string text = one_row ? row_of(form, random) : column_of(form, random);
    if (random() % 2 == 0) mutate(text, kAlphabet, random);
    const std::string found = outcome(text, form, one_row);
    accepted += !found.starts_with(kWhole);
    CHECK_EQ(outcome(spaced(text), form, one_row), found);
    CHECK_EQ(outcome(text + std::string(200, ' '), form, one_row), found);
    CHECK_EQ(outcome(std::string(100, '\n') + text, form, one_row), found);
  });
  std::printf("%zu columns, %zu accepted\n", rounds, accepted);
  CHECK(accepted > rounds / 4);
}

int main() { return run_tests(); }
