// Mutated number arrays: no crash, no read past the end, and the same answer on both paths.
//
// Runs for ANABRANCH_FUZZ_SECONDS (default 2), from a seed that is printed.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "anabranch/json_numbers.h"
#include "anabranch/json_scan.h"
#include "check.h"

using namespace anabranch;

namespace {

constexpr Datatype kTypes[] = {Datatype::kBool,   Datatype::kInt8,   Datatype::kInt64,
                               Datatype::kUint32, Datatype::kUint64, Datatype::kFp32,
                               Datatype::kFp64};
constexpr std::size_t kDepth = 6;

double seconds_to_run() {
  const char* given = std::getenv("ANABRANCH_FUZZ_SECONDS");
  return given != nullptr ? std::atof(given) : 2.0;
}

std::string seed_text(std::mt19937_64& random) {
  static const char* const pieces[] = {"[",
                                       "]",
                                       ",",
                                       "0",
                                       "1",
                                       "-",
                                       "1.5",
                                       "e5",
                                       "E-7",
                                       "NaN",
                                       "Infinity",
                                       "true",
                                       "false",
                                       "null",
                                       "\"x\"",
                                       "123456789012345678901234567890",
                                       ".25",
                                       " ",
                                       "\n",
                                       "0.1",
                                       "3.4028235e38",
                                       "00",
                                       "255",
                                       "-0",
                                       "1e-45",
                                       "9223372036854775807"};
  const bool wild = random() % 2 == 0;
  std::string text = "[";
  for (auto left = random() % 60; left > 0; --left) {
    if (wild && random() % 4 == 0) {
      text += pieces[random() % std::size(pieces)];
    } else {
      text += std::to_string(static_cast<double>(random() % 100000) /
                             static_cast<double>(1 + random() % 1000));
      text += ',';
    }
  }
  if (text.back() == ',') text.pop_back();
  return text + "]";
}

void mutate(std::string& text, std::mt19937_64& random) {
  static constexpr std::string_view kAlphabet = "[]{},.:-+eE0123456789NaInfity\"\\ \n\t\0\xff";
  for (auto left = random() % 4; left > 0 && !text.empty(); --left) {
    const std::size_t at = random() % text.size();
    const char c = kAlphabet[random() % kAlphabet.size()];
    switch (random() % 4) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.insert(at, 1 + random() % 3, c);
        break;
      case 2:
        text.erase(at, 1 + random() % 5);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 30));
    }
  }
}

// The numbers' bytes, or nothing when the text was refused; `error` gets the message. The text is
// given in memory of exactly its size, so that the sanitizer sees a read past its end.
std::optional<std::string> parse(const std::string& text, Datatype type, std::size_t count,
                                 std::string* error = nullptr) {
  const std::unique_ptr<char[]> exact(new char[text.size()]);
  std::memcpy(exact.get(), text.data(), text.size());
  try {
    const AlignedBuffer values = parse_numbers({exact.get(), text.size()}, type, count, kDepth);
    return std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  } catch (const JsonError& refusal) {
    if (error != nullptr) *error = refusal.what();
    return std::nullopt;
  }
}

// How many elements a well-formed text has, as the message for too few says it.
std::size_t count_of(const std::string& text, Datatype type) {
  constexpr std::string_view kMarker = "elements, found ";
  const std::size_t most = text.size() / 2;
  std::string error;
  parse(text, type, most, &error);
  const std::size_t at = error.find(kMarker);
  if (at == std::string::npos) return most;
  return std::strtoull(error.c_str() + at + kMarker.size(), nullptr, 10);
}

}  // namespace

TEST(mutated_arrays_have_one_outcome_and_harm_nothing) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_to_run());
  std::size_t rounds = 0;
  std::size_t accepted = 0;
  while (std::chrono::steady_clock::now() < end && anabranch::testing::failures == 0) {
    std::string text = seed_text(random);
    mutate(text, random);
    const Datatype type = kTypes[random() % std::size(kTypes)];
    const std::size_t count = count_of(text, type);
    const auto numbers = parse(text, type, count);
    // Space behind it puts every element on the fast path.
    if (numbers != parse(text + std::string(200, ' '), type, count)) CHECK_EQ(text, "two outcomes");
    if (numbers) {
      ++accepted;
      const std::string again = dump_numbers(type, std::as_bytes(std::span(*numbers)));
      const bool has_nan = again.find("NaN") != std::string::npos;  // its sign is not kept
      if (!has_nan && parse(again, type, count) != numbers) CHECK_EQ(text, "not what was dumped");
    }
    try {
      scan_json(text, {kDepth, 100, 20});
    } catch (const JsonError&) {
    }
    ++rounds;
  }
  std::printf("%zu texts, %zu accepted\n", rounds, accepted);
  CHECK(accepted > rounds / 50);
}

int main() { return anabranch::testing::run_tests(); }
