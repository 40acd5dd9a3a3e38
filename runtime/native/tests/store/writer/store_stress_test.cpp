// One writer and readers that hold leases: every row they see is whole, and of exactly their
// version. Run under ThreadSanitizer; readers use the writer's mapping, so that it sees both sides.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "anabranch/store/errors.h"
#include "check.h"
#include "store/writer/stores.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

constexpr std::uint64_t kKeys = 120;
constexpr std::uint64_t kDenseIds = 70;
constexpr std::uint64_t kPassing = 1000000;  // key kPassing + v is there at version v alone
constexpr std::uint32_t kVersions = 3000;
constexpr int kReaders = 2;

enum class Fate { kUntouched, kWritten, kErased };

// What version `version` does to a key.
Fate fate(std::uint64_t key, std::uint32_t version) {
  const std::uint64_t dice = mix(key, version) >> 32;
  if (dice % 4 != 0) return Fate::kUntouched;
  return dice % 20 == 0 ? Fate::kErased : Fate::kWritten;
}

// The tag that a key has at `version`: the version that wrote it last.
std::uint64_t expected_tag(std::uint64_t key, std::uint32_t version, bool dense) {
  for (; version > kFirstVersion; --version) {
    const Fate done = fate(key, version);
    if (done == Fate::kErased && !dense) return 0;
    if (done != Fate::kUntouched) return version;
  }
  return dense ? key + 1 : 0;
}

struct Epoch {
  std::shared_ptr<const Generation> generation;
  std::uint32_t version;
};

// The current epoch, and which one each reader holds.
class Board {
 public:
  explicit Board(Epoch epoch) : current_(std::move(epoch)) { leases_.fill(kNone); }

  Epoch lease(int reader) {
    const std::lock_guard guard(mutex_);
    leases_[static_cast<std::size_t>(reader)] = current_.version;
    return current_;
  }
  void give_back(int reader) {
    const std::lock_guard guard(mutex_);
    leases_[static_cast<std::size_t>(reader)] = kNone;
  }
  void publish(Epoch epoch) {
    const std::lock_guard guard(mutex_);
    current_ = std::move(epoch);
  }
  std::uint32_t floor() {
    const std::lock_guard guard(mutex_);
    return std::min(current_.version, *std::min_element(leases_.begin(), leases_.end()));
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::mutex mutex_;
  Epoch current_;
  std::array<std::uint32_t, kReaders> leases_;
};

void write_version(Change& change, std::uint32_t version) {
  std::vector<std::uint64_t> written = {kPassing + version};
  std::vector<std::uint64_t> erased = {kPassing + version - 1};
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    if (fate(key, version) == Fate::kWritten) written.push_back(key);
    if (fate(key, version) == Fate::kErased) erased.push_back(key);
  }
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 0; id < kDenseIds; ++id) {
    if (fate(id, version) != Fate::kUntouched) ids.push_back(id);
  }
  const auto tags = [&](std::size_t count) { return std::vector<std::uint64_t>(count, version); };
  change.erase(0, erased);
  upsert(change, 0, 4, written, tags(written.size()));
  upsert(change, 1, 4, ids, tags(ids.size()));
}

// One version, waiting for readers where rows or slots have run out.
void advance(StoreWriter& writer, Board& board) {
  for (;;) {
    writer.reclaim(board.floor());
    try {
      Change change = writer.begin();
      write_version(change, change.version());
      change.apply();
      return;
    } catch (const StoreFull&) {
      std::this_thread::yield();
    }
  }
}

void read(Board& board, int reader, const std::atomic<bool>& done,
          std::atomic<std::uint64_t>& seen) {
  std::mt19937_64 random(static_cast<std::uint64_t>(reader));
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
  const auto segment = segment_of(
      {{.name = "h"}, {.name = "d", .keys = KeyKind::kDenseId, .base = counted(0, kDenseIds)}});
  const Capacity small[] = {{400, 170}, {300, 0}};
  const Capacity large[] = {{1000, 300}, {300, 0}};
  auto writer = StoreWriter::create(segment, small);
  Board board({writer->generation(), writer->version()});
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> seen = 0;
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] { read(board, r, done, seen); });
  }
  std::uint64_t growths = 0;
  while (writer->version() < kVersions) {
    if (writer->version() % 500 == 0) {
      const auto growth = writer->grow(growths % 2 == 0 ? std::span(large) : std::span(small));
      while (!growth->step(20)) {
        advance(*writer, board);
        board.publish({writer->generation(), writer->version()});
      }
      writer = growth->finish();
      ++growths;
    }
    advance(*writer, board);
    board.publish({writer->generation(), writer->version()});
  }
  done = true;
  for (auto& reader : readers) reader.join();
  CHECK(seen > 0);
  CHECK(growths >= 5);
}

int main() { return run_tests(); }
