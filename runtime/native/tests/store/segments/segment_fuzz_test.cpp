// Mutated segments, with checksums that were made right again: no crash, no read outside.
//
// Runs for ANABRANCH_FUZZ_SECONDS (default 2), from a seed that is printed.
#include <chrono>
#include <cstdlib>
#include <random>

#include "anabranch/store/errors.h"
#include "anabranch/store/segment.h"
#include "check.h"
#include "damage.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

double seconds_to_run() {
  const char* given = std::getenv("ANABRANCH_FUZZ_SECONDS");
  return given != nullptr ? std::atof(given) : 2.0;
}

constexpr std::uint64_t kTelling[] = {0,
                                      1,
                                      2,
                                      63,
                                      64,
                                      4096,
                                      1024,
                                      1025,
                                      std::uint64_t{1} << 31,
                                      std::uint64_t{1} << 32,
                                      kOverflow,
                                      ~std::uint64_t{0},
                                      ~std::uint64_t{63}};

// Changes a word of the header, of the directory or of anything, in one of several ways.
void mutate(Bytes& bytes, std::mt19937_64& random) {
  const auto header = value_at<segment_layout::Header>(bytes, 0);
  const std::size_t places[] = {random() % 10 * 8,
                                header.off_directory + random() % (header.directory_bytes / 4) * 4,
                                4096 + random() % ((bytes.size() - 4104) / 8) * 8};
  std::size_t at = places[random() % 3];
  if (at + 8 > bytes.size()) at = bytes.size() - 8;
  const auto before = value_at<std::uint64_t>(bytes, at);
  const std::uint64_t values[] = {kTelling[random() % std::size(kTelling)],
                                  before ^ std::uint64_t{1} << random() % 64,
                                  before + random() % 5 - 2,
                                  (before & ~std::uint64_t{0xFFFFFFFF}) |
                                      (kTelling[random() % std::size(kTelling)] & 0xFFFFFFFF),
                                  random() % bytes.size() / 64 * 64,
                                  random()};
  set_value(bytes, at, values[random() % std::size(values)]);
}

}  // namespace

TEST(mutated_segments_are_read_or_refused) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  const Bytes sample = sample_segment();
  const auto off_directory = value_at<segment_layout::Header>(sample, 0).off_directory;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_to_run());
  MemoryFile file(sample);
  std::size_t rounds = 0;
  std::size_t mapped = 0;
  std::size_t verified = 0;
  while (std::chrono::steady_clock::now() < end) {
    Bytes bytes = sample;
    for (auto faults = 1 + random() % 3; faults > 0; --faults) {
      mutate(bytes, random);
      // Later faults look up places in the header.
      if (value_at<segment_layout::Header>(bytes, 0).off_directory != off_directory) break;
      if (value_at<segment_layout::Header>(bytes, 0).directory_bytes < 4) break;
    }
    if (random() % 8 != 0) reseal(bytes);
    if (random() % 16 == 0) bytes.resize(random() % bytes.size());
    file.resize(bytes.size());
    file.write(0, bytes);
    ++rounds;
    try {
      const auto segment = Segment::map(file.fd());
      ++mapped;
      for (std::size_t table = 0; table < segment->tables().size(); ++table) {
        segment->probes(table);
      }
      segment->verify();
      ++verified;
      for (std::size_t table = 0; table < segment->tables().size(); ++table) {
        for (const std::uint64_t key : {kEmptyKey, kDeadKey, std::uint64_t{977 * 5}}) {
          row_of_key(*segment, table, key);
        }
      }
    } catch (const Damaged&) {
    } catch (const Foreign&) {
    }
  }
  std::printf("%zu segments, %zu mapped, %zu sound\n", rounds, mapped, verified);
  CHECK(mapped > rounds / 10);
  CHECK(verified < mapped);
}

int main() { return anabranch::testing::run_tests(); }
