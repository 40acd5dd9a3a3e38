// One writer that changes, reclaims and grows while readers hold leases, for tests under threads.
//
// What a key has at a version follows from the two numbers, so that readers need no model. Readers
// use the writer's mapping: ThreadSanitizer sees both sides.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "anabranch/store/errors.h"
#include "check.h"
#include "store/writer/stores.h"

namespace anabranch::testing {

inline constexpr std::uint64_t kKeys = 120;
inline constexpr std::uint64_t kDenseIds = 70;
inline constexpr std::uint64_t kPassing = 1000000;  // key kPassing + v is there at version v alone

enum class Fate { kUntouched, kWritten, kErased };

// What version `version` does to a key.
inline Fate fate(std::uint64_t key, std::uint32_t version) {
  const std::uint64_t dice = store::mix(key, version) >> 32;
  if (dice % 4 != 0) return Fate::kUntouched;
  return dice % 20 == 0 ? Fate::kErased : Fate::kWritten;
}

// The tag that a key has at `version`: the version that wrote it last.
inline std::uint64_t expected_tag(std::uint64_t key, std::uint32_t version, bool dense) {
  for (; version > store::kFirstVersion; --version) {
    const Fate done = fate(key, version);
    if (done == Fate::kErased && !dense) return 0;
    if (done != Fate::kUntouched) return version;
  }
  return dense ? key + 1 : 0;
}

struct Epoch {
  std::shared_ptr<const store::Generation> generation;
  std::uint32_t version;
};

// The current epoch, and which one each reader holds.
class Board {
 public:
  Board(Epoch epoch, std::size_t readers) : current_(std::move(epoch)), leases_(readers, kNone) {}

  Epoch lease(std::size_t reader) {
    const std::lock_guard guard(mutex_);
    leases_[reader] = current_.version;
    return current_;
  }
  void give_back(std::size_t reader) {
    const std::lock_guard guard(mutex_);
    leases_[reader] = kNone;
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
  std::vector<std::uint32_t> leases_;
};

inline void write_version(store::Change& change, std::uint32_t version) {
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
inline void advance(store::StoreWriter& writer, Board& board) {
  for (;;) {
    writer.reclaim(board.floor());
    try {
      store::Change change = writer.begin();
      write_version(change, change.version());
      change.apply();
      return;
    } catch (const store::StoreFull&) {
      std::this_thread::yield();
    }
  }
}

// Calls `read(board, reader, done)` in a thread for each of `readers`, while a writer goes through
// `versions` with a growth every `grow_every` of them. `read` returns once `done` is set.
template <class Read>
void read_beside_changes(std::size_t readers, std::uint32_t versions, std::uint32_t grow_every,
                         Read&& read) {
  const auto segment =
      segment_of({{.name = "h"},
                  {.name = "d", .keys = store::KeyKind::kDenseId, .base = counted(0, kDenseIds)}});
  const store::Capacity small[] = {{400, 170}, {300, 0}};
  const store::Capacity large[] = {{1000, 300}, {300, 0}};
  auto writer = store::StoreWriter::create(segment, small);
  Board board({writer->generation(), writer->version()}, readers);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (std::size_t reader = 0; reader < readers; ++reader) {
    threads.emplace_back([&, reader] { read(board, reader, done); });
  }
  const auto next = [&] {
    advance(*writer, board);
    board.publish({writer->generation(), writer->version()});
  };
  std::uint32_t growths = 0;
  while (writer->version() < versions) {
    if (writer->version() / grow_every > growths) {
      const auto growth = writer->grow(growths % 2 == 0 ? std::span(large) : std::span(small));
      while (!growth->step(20)) next();
      writer = growth->finish();
      ++growths;
    }
    next();
  }
  done = true;
  for (auto& thread : threads) thread.join();
  CHECK(growths + 1 >= versions / grow_every);
}

}  // namespace anabranch::testing
