// One writer and readers that hold leases: every row they see is whole, and of exactly their
// version. Run under ThreadSanitizer too.
#include <atomic>
#include <random>

#include "check.h"
#include "store/writer/leased_readers.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

void read(Board& board, std::size_t reader, const std::atomic<bool>& done,
          std::atomic<std::uint64_t>& seen) {
  std::mt19937_64 random(reader);
  std::uint32_t newest = 0;
  while (!done) {
    const Epoch epoch = board.lease(reader);
    CHECK(epoch.version >= newest);
    newest = epoch.version;
    const auto tables = epoch.generation->tables();
    for (auto batches = random() % 4; batches > 0; --batches) {
      for (int i = 0; i < 50; ++i) {
        const std::uint64_t key = random() % kKeys;
        CHECK_EQ(tag_at(tables[0], key, newest), expected_tag(key, newest, false));
        const std::uint64_t id = random() % kDenseIds;
        CHECK_EQ(tag_at(tables[1], id, newest), expected_tag(id, newest, true));
      }
      CHECK_EQ(tag_at(tables[0], kPassing + newest - 1, newest), 0u);
      CHECK_EQ(tag_at(tables[0], kPassing + newest + 1, newest), 0u);
      if (newest > kFirstVersion) CHECK_EQ(tag_at(tables[0], kPassing + newest, newest), newest);
      ++seen;
    }
    board.give_back(reader);
  }
}

}  // namespace

TEST(readers_see_exactly_their_version_beside_changes_and_growth) {
  std::atomic<std::uint64_t> seen = 0;
  read_beside_changes(2, 3000, 500,
                      [&](Board& board, std::size_t reader, const std::atomic<bool>& done) {
                        read(board, reader, done, seen);
                      });
  CHECK(seen > 0);
}

int main() { return run_tests(); }
