#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "anabranch/features/program.h"
#include "check.h"
#include "program_samples.h"

using namespace anabranch::features;

// Threads run one program over columns of their own, of different sizes.
TEST(threads_share_a_program) {
  Feature feature = with_keys(candidate("f", ValueType::kString), Hash{HashFunction::kXxh64, 0, 0});
  feature.default_value = Default{{}, {}, {"default"}};
  const Program program({feature}, {});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const std::string text = "thread " + std::to_string(thread);
      std::string all = "[null";
      for (int row = 0; row < 20 * thread; ++row) all += ",\"" + text + "\"";
      all += "]";
      const std::int64_t key = hash_key(HashFunction::kXxh64, 0, 0, text);
      const std::int64_t absent = hash_key(HashFunction::kXxh64, 0, 0, "default");
      for (int round = 0; round < 200; ++round) {
        const Outputs outputs = program.run(std::vector<SentColumn>{json(all)}, 0, kLimits);
        const auto ids = numbers<std::int64_t>(outputs.keys[0].ids[0]);
        for (std::size_t row = 0; row < ids.size(); ++row) {
          wrong += ids[row] != (row == 0 ? absent : key);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

int main() { return anabranch::testing::run_tests(); }
