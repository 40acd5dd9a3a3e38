#include "anabranch/features/program.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "program_samples.h"

using namespace anabranch::features;

namespace {

std::vector<std::string> faults_of(const Outputs& outputs) {
  std::vector<std::string> all;
  for (const FeatureFault& each : outputs.faults) {
    const bool whole = each.fault.row == Fault::kWhole;
    all.push_back(std::to_string(each.feature) + "," +
                  (whole ? "-" : std::to_string(each.fault.row)) + ": " + each.fault.text);
  }
  return all;
}

const Hash kHash{HashFunction::kXxh64, 0, 1000};

}  // namespace

TEST(values_of_a_user_are_repeated) {
  Feature user = ragged(candidate("u"), {3, Keep::kLast, 4, 9});
  user.side = Side::kUser;
  user.values = {{0, 1}};
  user.lengths = TensorSink{0, 0};
  Feature price = candidate("p", ValueType::kFloat32);
  price.values = {{0, 5}};
  const Program program({user, price}, {{"X", NumberType::kFloat32, 6}});

  const std::vector<SentColumn> columns{json("[1,2,3,4]"), json("[0.5,1.5]")};
  const Outputs outputs = program.run(columns, 0, kLimits);

  CHECK_EQ(outputs.rows, 2U);
  CHECK(numbers<float>(outputs.tensors[0].numbers) ==
        std::vector<float>({3, 2, 3, 4, 9, 0.5, 3, 2, 3, 4, 9, 1.5}));
  CHECK_EQ(outputs.counts[0].truncated, 1U);
  CHECK(outputs.faults.empty());
}

TEST(rows_at_fault_take_the_default_and_count_nothing) {
  Vocabulary vocabulary;
  vocabulary.strings = {{"red", 1}, {"blue", 2}};
  Feature feature = ragged(with_keys(candidate("c", ValueType::kString), vocabulary),
                           {2, Keep::kError, std::nullopt, 0});
  feature.default_value = Default{{}, {}, {"blue", "red"}};
  const Program program({feature}, {});

  const std::vector<SentColumn> columns{
      json(R"([["red"],null,["green","red"],[],["red","red","red"]])")};
  const Outputs outputs = program.run(columns, 0, kLimits);

  CHECK(faults_of(outputs) ==
        std::vector<std::string>({"0,2: expected a value of the vocabulary, got \"green\"",
                                  "0,4: expected at most 2 values, got 3"}));
  CHECK(numbers<std::int64_t>(outputs.keys[0].ids[0]) ==
        std::vector<std::int64_t>({1, 2, 1, 2, 1, 2, 1}));
  CHECK(numbers<std::int64_t>(*outputs.keys[0].lengths) ==
        std::vector<std::int64_t>({1, 2, 2, 0, 2}));
  CHECK_EQ(outputs.counts[0].values, 3U);
  CHECK_EQ(outputs.counts[0].defaulted, 1U);
}

TEST(the_first_readable_column_of_candidates_says_how_many_there_are) {
  const auto feature = [](const char* name) { return with_keys(candidate(name), kHash); };
  const Program program({feature("a"), feature("b"), feature("c"), feature("d")}, {});

  const std::vector<SentColumn> columns{json("7"), json("[1,2]"), json("[1]"), {}};
  const Outputs outputs = program.run(columns, 9, kLimits);

  CHECK_EQ(outputs.rows, 2U);
  CHECK_EQ(outputs.faults.size(), 3U);
  CHECK_EQ(outputs.faults[0].feature, 0U);
  CHECK_EQ(outputs.faults[1].fault.text, "expected 2 rows, as feature 'b' has, got 1");
  CHECK_EQ(outputs.faults[2].fault.text, "expected a value, got nothing");
  for (const FlatKeys& keys : outputs.keys) CHECK_EQ(keys.values, 2U);
}

TEST(no_rows_at_all) {
  Feature user = candidate("u", ValueType::kString);
  user.side = Side::kUser;
  user.values = {{0, 0}};
  Feature text = candidate("t", ValueType::kString);
  text.values = {{0, 1}};
  Feature bag = ragged(with_keys(candidate("b"), kHash), {2, Keep::kError, std::nullopt, 0});
  const Program program({user, text, bag}, {{"T", NumberType::kString, 2}});

  const std::vector<SentColumn> columns{json("\"x\""), json("[]"), json("[]")};
  const Outputs outputs = program.run(columns, 0, kLimits);

  CHECK_EQ(outputs.tensors[0].strings.size(), 0U);
  CHECK_EQ(outputs.keys[0].values, 0U);
  CHECK(outputs.faults.empty());
}

TEST(contradictions_are_refused) {
  const auto refused = [](Feature feature, std::vector<Tensor> tensors, const char* text) {
    CHECK_THROWS(std::invalid_argument, text, Program({feature}, std::move(tensors)));
  };
  Feature filler = candidate("f");
  filler.values = {{0, 0}};
  refused(filler, {{"X", NumberType::kInt64, 2}}, "features that fill all of its columns");
  refused(filler, {{"X", NumberType::kString, 1}}, "a tensor of numbers");
  refused(ragged(filler, {2, Keep::kFirst, std::nullopt, 0}), {{"X", NumberType::kInt64, 1}},
          "expected pad_to");
  refused(ragged(filler, {2, Keep::kFirst, 2, 0.5}), {{"X", NumberType::kInt64, 2}}, "padding");
  refused(ragged(filler, {2, Keep::kFirst, 2, 1e10}), {{"X", NumberType::kInt32, 2}}, "padding");
  filler.default_value = Default{{1 << 25}, {}, {}};
  refused(filler, {{"X", NumberType::kFloat32, 1}}, "its default: expected an integer");
  Feature lengths = ragged(with_keys(candidate("f"), kHash), {5000, Keep::kFirst, {}, 0});
  lengths.lengths = TensorSink{0, 0};
  refused(lengths, {{"X", NumberType::kFloat16, 1}}, "holds max_length");
}

// Arrays of any content: nothing is read or written outside of them, and shapes always hold.
TEST(random_arrays) {
  std::mt19937_64 random(5);
  Feature bag = ragged(with_keys(candidate("b", ValueType::kString), kHash),
                       {3, Keep::kLast, std::nullopt, 0});
  bag.form.weighted = true;
  Feature id = candidate("i");
  id.values = {{0, 0}};
  const Program program({bag, id}, {{"X", NumberType::kFloat16, 1}});
  std::size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::size_t rows = random() % 4;
    std::vector<std::uint32_t> lengths(rows);
    std::size_t values = 0;
    for (auto& length : lengths) values += length = static_cast<std::uint32_t>(random() % 5);
    const std::string bytes(random() % 20, 'x');
    std::vector<std::int64_t> offsets(values + random() % 16 / 15 + 1);
    for (std::size_t i = 1; i < offsets.size(); ++i) {
      offsets[i] = offsets[i - 1] + static_cast<std::int64_t>(random() % 4);
    }
    if (random() % 8 == 0) offsets[random() % offsets.size()] = static_cast<std::int64_t>(random());
    std::vector<float> weights(random() % 2 ? values : 0, 0.5F);
    std::vector<std::int64_t> ids(rows);
    for (auto& each : ids) each = static_cast<std::int64_t>(random()) >> (random() % 64);
    std::vector<std::uint8_t> missing;
    if (random() % 2) {
      for (const auto length : lengths) missing.push_back(length == 0);
    }
    ArrayParts bags{ValueType::kString, {}, {}, bytes, offsets, true, lengths, weights, missing};
    ArrayParts numbers{ValueType::kInt64, ids, {}, {}, {}, false, {}, {}, missing};
    try {
      const Outputs outputs = program.run(std::vector<SentColumn>{bags, numbers}, 0, kLimits);
      ++accepted;
      CHECK_EQ(outputs.tensors[0].rows, rows);
      CHECK_EQ(outputs.keys[0].rows, rows);
      CHECK(outputs.keys[0].values <= values);
    } catch (const std::invalid_argument&) {
    }
  }
  CHECK(accepted > 2000);
}

int main() { return anabranch::testing::run_tests(); }
