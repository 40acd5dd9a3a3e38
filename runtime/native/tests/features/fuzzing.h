// Random damage for tests of readers.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include "anabranch/features/raw_column.h"
#include "check.h"

namespace anabranch::testing {

using Random = std::mt19937_64;

// Calls `round` with a generator, whose seed is printed, for ANABRANCH_FUZZ_SECONDS (default 2), or
// until a check fails. Returns how often.
template <class Round>
std::size_t fuzz(Round&& round) {
  const char* const given = std::getenv("ANABRANCH_FUZZ_SECONDS");
  const double seconds = given != nullptr ? std::atof(given) : 2.0;
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  Random random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::size_t rounds = 0;
  for (; std::chrono::steady_clock::now() < end && failures == 0; ++rounds) round(random);
  return rounds;
}

// Changes a few bytes: some are replaced by, or get before them, bytes of `alphabet`; some go, some
// come twice.
inline void mutate(std::string& text, std::string_view alphabet, Random& random) {
  for (auto left = random() % 4; left > 0 && !text.empty(); --left) {
    const std::size_t at = random() % text.size();
    const char c = alphabet[random() % alphabet.size()];
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

inline features::ColumnForm random_form(Random& random) {
  features::ColumnForm form{static_cast<features::ValueType>(random() % 3)};
  form.ragged = random() % 2 == 0;
  form.width = form.ragged || random() % 2 == 0 ? 1 : 2 + random() % 2;
  form.weighted = form.ragged && random() % 2 == 0;
  return form;
}

}  // namespace anabranch::testing
