#include "anabranch/json_detach.h"

#include <random>

#include "check.h"

using namespace anabranch;

namespace {

std::string joined(const DetachedNumbers& detached) {
  std::string all = detached.document;
  for (const std::string_view array : detached.arrays) all += " | " + std::string(array);
  return all;
}

std::string detach(std::string_view text) { return joined(detach_numbers(text, "data", 100)); }

}  // namespace

TEST(number_arrays_under_the_key_are_taken_out) {
  CHECK_EQ(
      detach(R"({"inputs":[{"name":"a","data":[1,2],"shape":[2]},{"data" : [[3],[NaN]] }]})"),
      R"({"inputs":[{"name":"a","data":[0],"shape":[2]},{"data" : [1] }]} | [1,2] | [[3],[NaN]])");
  CHECK_EQ(detach(R"({"data":[]})"), R"({"data":[0]} | [])");
  CHECK_EQ(detach("{\"data\"\n:\t[1 ] ,\r\"x\":2}"), "{\"data\"\n:\t[0] ,\r\"x\":2} | [1 ]");
  CHECK_EQ(detach(R"({"a":{"data":[1]},"data":[true,null]})"),
           R"({"a":{"data":[0]},"data":[1]} | [1] | [true,null])");
}

TEST(everything_else_stays) {
  for (const char* text :
       {"", "[1,2]", R"({"data":5})", R"({"data":["a","b"]})", R"({"data":[1,"b"]})",
        R"({"data":[[1],"b"]})", R"({"data":[[[1],[2]],["b"]]})", R"({"data":[{"a":1}]})",
        R"({"data":[{}]})", R"({"other":[1]})", R"({"Data":[1]})", R"({"x":"data"})",
        R"(["data",[1]])", R"({"x\"data":[1]})", R"({"d\u0061ta":[1]})", R"({"metadata":[1]})",
        R"({"data":null})"}) {
    CHECK_EQ(detach(text), text);
  }
}

TEST(malformed_text_stays_malformed) {
  // Either it is left in place, or what is taken out is as malformed as it was.
  CHECK_EQ(detach(R"({"data":[1,2)"), R"({"data":[1,2)");
  CHECK_EQ(detach(R"({"data":[1,2}])"), R"({"data":[1,2}])");
  CHECK_EQ(detach(R"({"data":[1]]})"), R"({"data":[1]]})");
  CHECK_EQ(detach(R"({"data":[1] [2]})"), R"({"data":[0]} | [1] [2])");
  CHECK_EQ(detach(R"({"data":[1],[2],"a":3})"), R"({"data":[0],"a":3} | [1],[2])");
  CHECK_EQ(detach(R"({"data")"), R"({"data")");
  CHECK_EQ(detach(R"({"data":)"), R"({"data":)");
}

TEST(the_number_of_arrays_is_limited) {
  const std::string text = R"([{"data":[1]},{"data":[2]},{"data":[3]}])";
  CHECK_EQ(detach_numbers(text, "data", 3).arrays.size(), 3u);
  CHECK_THROWS(JsonTooManyElements, "more than 2 arrays of numbers under \"data\"",
               detach_numbers(text, "data", 2));
}

TEST(putting_the_arrays_back_gives_the_text_again) {
  std::mt19937_64 random(31);
  const char* const pieces[] = {
      "\"data\"", ":", "[", "]", "1", ",", "\"", "\\", "{", "}", " ", "\"data\":[1,2]", "[3]"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto left = random() % 30; left > 0; --left) text += pieces[random() % std::size(pieces)];
    const DetachedNumbers detached = detach_numbers(text, "data", 1000);
    std::string again;
    const char* taken_to = text.data();
    std::string_view document = detached.document;
    for (std::size_t i = 0; i < detached.arrays.size(); ++i) {
      const auto between = static_cast<std::size_t>(detached.arrays[i].data() - taken_to);
      const std::string stand_in = '[' + std::to_string(i) + ']';
      again += document.substr(0, between);
      CHECK(document.substr(between).starts_with(stand_in));
      document.remove_prefix(between + stand_in.size());
      again += detached.arrays[i];
      taken_to = detached.arrays[i].data() + detached.arrays[i].size();
    }
    CHECK_EQ(again + std::string(document), text);
  }
}

int main() { return anabranch::testing::run_tests(); }
