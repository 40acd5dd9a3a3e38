// Creation, opening, damage; then threads that write and read one mapping, for ThreadSanitizer.
#include "anabranch/shared_words.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "check.h"

using namespace anabranch;

namespace {

// A memfd with these first 64 bytes.
int file_with(const void* header, std::size_t bytes, off_t size, int seals) {
  const int fd = ::memfd_create("test", MFD_ALLOW_SEALING);
  CHECK(fd >= 0 && ::ftruncate(fd, size) == 0);
  CHECK(::pwrite(fd, header, bytes, 0) == static_cast<ssize_t>(bytes));
  CHECK(seals == 0 || ::fcntl(fd, F_ADD_SEALS, seals) == 0);
  return fd;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

}  // namespace

TEST(words_begin_at_zero_and_keep_what_is_stored) {
  SharedWords words = SharedWords::create(100);
  CHECK_EQ(words.words(), 100u);
  for (std::size_t i = 0; i < 100; ++i) CHECK_EQ(words.load(i), 0u);
  words.store(0, 7);
  words.store(99, UINT64_MAX);
  CHECK_EQ(words.load(0), 7u);
  CHECK_EQ(words.load(98), 0u);
  CHECK_EQ(words.load(99), UINT64_MAX);
  CHECK_EQ(words.add(99, 2), 1u);
  CHECK_EQ(words.add(0, -7), 0u);
  CHECK_THROWS(std::out_of_range, "word 100 of 100", words.load(100));
  CHECK_THROWS(std::out_of_range, "word 100 of 100", words.store(100, 1));
  CHECK_THROWS(std::out_of_range, "", words.add(SIZE_MAX, 1));
}

TEST(sizes_outside_the_bounds_are_refused) {
  CHECK_THROWS(std::invalid_argument, "not 0", SharedWords::create(0));
  CHECK_THROWS(std::invalid_argument, "1048576", SharedWords::create(SharedWords::kMaxWords + 1));
  CHECK_EQ(SharedWords::create(SharedWords::kMaxWords).words(), SharedWords::kMaxWords);
}

TEST(another_mapping_sees_the_words_and_may_write_them) {
  SharedWords first = SharedWords::create(3);
  SharedWords second = SharedWords::open(first.fd(), true);
  second.store(2, 5);
  CHECK_EQ(first.load(2), 5u);
  CHECK_EQ(first.add(2, 1), 6u);
  CHECK_EQ(second.load(2), 6u);
}

TEST(a_reader_can_neither_store_nor_open_for_writing) {
  SharedWords words = SharedWords::create(3);
  const int fd = words.reader_fd();
  CHECK_THROWS(std::system_error, "this descriptor only reads", SharedWords::open(fd, true));
  SharedWords reader = SharedWords::open(fd, false);
  ::close(fd);
  words.store(1, 9);
  CHECK_EQ(reader.load(1), 9u);
  CHECK(!reader.writable());
  CHECK_THROWS(std::system_error, "reading only", reader.store(1, 1));
  CHECK_THROWS(std::system_error, "reading only", reader.add(1, 1));
  CHECK_EQ(words.load(1), 9u);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader.fd(), 0) == MAP_FAILED);
}

TEST(the_size_is_sealed) {
  SharedWords words = SharedWords::create(3);
  CHECK(::ftruncate(words.fd(), 0) != 0);
  CHECK(::ftruncate(words.fd(), 1 << 20) != 0);
}

TEST(descriptors_are_closed_and_not_inherited) {
  const int before = open_descriptors();
  {
    SharedWords words = SharedWords::create(3);
    SharedWords moved = std::move(words);
    SharedWords other = SharedWords::open(moved.fd(), true);
    CHECK(::fcntl(moved.fd(), F_GETFD) == FD_CLOEXEC);
    CHECK(::fcntl(other.fd(), F_GETFD) == FD_CLOEXEC);
    CHECK_EQ(open_descriptors(), before + 2);
  }
  CHECK_EQ(open_descriptors(), before);
}

TEST(damage_is_found_at_opening) {
  const SharedWords good = SharedWords::create(3);
  std::byte header[64];
  CHECK(::pread(good.fd(), header, sizeof header, 0) == 64);
  const auto check_refused = [&](std::size_t at, std::uint64_t value, off_t size, int seals,
                                 const char* why) {
    std::byte changed[64];
    std::memcpy(changed, header, sizeof changed);
    std::memcpy(changed + at, &value, sizeof value);
    const int fd = file_with(changed, sizeof changed, size, seals);
    CHECK_THROWS(DamagedWords, why, SharedWords::open(fd, false));
    ::close(fd);
  };
  std::uint64_t magic, format, words;
  std::memcpy(&magic, header, 8);
  std::memcpy(&format, header + 8, 8);
  std::memcpy(&words, header + 24, 8);
  check_refused(0, magic, 4096, 0, "not sealed");
  check_refused(0, magic ^ 1, 4096, F_SEAL_SHRINK, "header is missing");
  check_refused(8, format + 1, 4096, F_SEAL_SHRINK, "format 2");
  check_refused(8, format ^ (std::uint64_t{1} << 32), 4096, F_SEAL_SHRINK, "damaged header");
  check_refused(0, magic, 8192, F_SEAL_SHRINK, "damaged header");
  for (const std::uint64_t count : {std::uint64_t{0}, words + 64, UINT64_MAX, UINT64_MAX / 64}) {
    check_refused(24, count, 4096, F_SEAL_SHRINK, "damaged header");
  }
  const int empty = file_with(header, 0, 0, F_SEAL_SHRINK);
  CHECK_THROWS(DamagedWords, "header is missing", SharedWords::open(empty, false));
  ::close(empty);
  int ends[2];
  CHECK(::pipe(ends) == 0);
  CHECK_THROWS(DamagedWords, "not sealed", SharedWords::open(ends[0], false));
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK_THROWS(std::system_error, "cannot open", SharedWords::open(ends[0], false));
}

// What a writer wrote before a word is there for whoever reads the word; and no word goes back.
TEST(readers_never_see_a_value_go_backwards) {
  constexpr std::uint64_t kRounds = 200000;
  constexpr std::size_t kSlots = 3;
  SharedWords words = SharedWords::create(kSlots);
  std::vector<std::uint64_t> written(kSlots * (kRounds + 1));  // plain memory, published by words
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&] {
      std::uint64_t last[kSlots] = {};
      while (last[kSlots - 1] < kRounds) {
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
          const std::uint64_t value = words.load(slot);
          CHECK(value >= last[slot] && value <= kRounds);
          CHECK_EQ(written[slot * (kRounds + 1) + value], value * (slot + 1));
          last[slot] = value;
        }
      }
    });
  }
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      written[slot * (kRounds + 1) + round] = round * (slot + 1);
      words.store(slot, round);
    }
  }
  for (auto& reader : readers) reader.join();
}

TEST(additions_from_many_threads_all_count) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50000;
  SharedWords words = SharedWords::create(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        words.add(0, 3);
        words.add(1, i % 2 == 0 ? 1 : -1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(words.load(0), std::uint64_t{3} * kThreads * kRounds);
  CHECK_EQ(words.load(1), 0u);
}

int main() { return anabranch::testing::run_tests(); }
