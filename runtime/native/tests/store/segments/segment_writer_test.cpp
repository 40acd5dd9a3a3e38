// What a writer refuses, what it does with duplicates, and what it leaves behind when it fails.
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmath>
#include <random>
#include <system_error>

#include "anabranch/store/errors.h"
#include "anabranch/store/segment.h"
#include "check.h"
#include "samples.h"

using namespace anabranch::store;
using anabranch::testing::Folder;
using anabranch::testing::map_file;
using anabranch::testing::row_of_key;

namespace {

constexpr RowFormat kOne{RowType::kF32, 1};
using Keys = std::vector<std::uint64_t>;
using Values = std::vector<float>;

// Runs in a child process, so that limits and kills stay there. Its wait status.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(99);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Writes a table of `rows` rows of 1 KiB.
void write_rows(SegmentWriter& writer, std::size_t rows) {
  writer.begin_table("x", {RowType::kF32, 256}, KeyKind::kHashed, rows, Duplicates::kRefuse);
  const Values values(256, 1.5F);
  for (std::size_t i = 0; i < rows; ++i) writer.add(Keys{i}, values);
}

}  // namespace

TEST(duplicates_are_refused_by_name) {
  const Folder folder;
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("items", kOne, KeyKind::kHashed, 10, Duplicates::kRefuse);
  writer.add(Keys{5, static_cast<std::uint64_t>(-7), 6}, Values{1, 2, 3});
  CHECK_THROWS(Refused,
               "table \"items\": key 18446744073709551609 (-7) comes twice, in rows 1 and 4",
               writer.add(Keys{8, static_cast<std::uint64_t>(-7)}, Values{4, 5}));
  CHECK_THROWS(std::logic_error, "at its end", writer.finish());

  SegmentWriter other(folder.path(), "b.seg", 1);
  other.begin_table("items", kOne, KeyKind::kHashed, 10, Duplicates::kRefuse);
  CHECK_THROWS(Refused, "key 0 comes twice, in rows 0 and 2",
               other.add(Keys{0, 1, 0}, Values{1, 2, 3}));
}

TEST(the_last_of_duplicates_wins) {
  const Folder folder;
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("x", kOne, KeyKind::kHashed, 9, Duplicates::kLastWins);
  writer.add(Keys{3, 0, 3, 4}, Values{1, 2, 3, 4});
  writer.add(Keys{0, 5, 4, 4, 6}, Values{5, 6, 7, 8, 9});
  writer.finish();

  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  CHECK_EQ(segment->tables()[0].rows, 5u);
  CHECK(row_of_key(*segment, 0, 3) == Values{3});
  CHECK(row_of_key(*segment, 0, 0) == Values{5});
  CHECK(row_of_key(*segment, 0, 4) == Values{8});
  CHECK(row_of_key(*segment, 0, 5) == Values{6});
  CHECK(row_of_key(*segment, 0, 6) == Values{9});
}

// Twelve MiB: each row is replaced soon, some of them across the seam of two pieces, and again when
// it is on disk.
TEST(rows_that_were_written_out_are_replaced_and_checksums_follow) {
  const Folder folder;
  constexpr std::size_t kRows = 20000;
  constexpr std::size_t kDim = 150;
  constexpr std::size_t kSoon = 10;
  constexpr std::size_t kLate = 7000;
  std::vector<float> expected;
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("x", {RowType::kF32, kDim}, KeyKind::kHashed, 3 * kRows,
                     Duplicates::kLastWins);
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto number = static_cast<float>(i);
    writer.add(Keys{i}, Values(kDim, number));
    expected.push_back(number);
    for (const std::size_t distance : {kSoon, kLate}) {
      if (i < distance) continue;
      writer.add(Keys{i - distance}, Values(kDim, -number));
      expected[i - distance] = -number;
    }
  }
  writer.finish();

  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  CHECK_EQ(segment->tables()[0].rows, kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    if (row_of_key(*segment, 0, i) != Values(kDim, expected[i])) CHECK_EQ(i, kRows);
  }
}

TEST(encoded_rows_are_taken_as_they_are) {
  const Folder folder;
  constexpr RowFormat kFormat{RowType::kInt8, 3};
  std::vector<std::byte> rows(2 * kFormat.stride(), std::byte{0xAB});
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("x", kFormat, KeyKind::kHashed, 2, Duplicates::kRefuse);
  writer.add_encoded(Keys{1, 2}, rows);
  writer.finish();

  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  const std::byte* held = segment->data() + segment->tables()[0].off_rows;
  CHECK_EQ(kFormat.stride(), 8u);
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(held[i] == (i % 8 == 7 ? std::byte{0} : std::byte{0xAB}));
  }
}

TEST(what_does_not_go_together_is_refused) {
  const Folder folder;
  int number = 0;
  const auto refused = [&](const char* message, auto&& body, KeyKind kind = KeyKind::kHashed) {
    SegmentWriter writer(folder.path(), std::to_string(number++), 1);
    writer.begin_table("x", {RowType::kInt8, 4}, kind, 2, Duplicates::kRefuse);
    CHECK_THROWS(std::invalid_argument, message, body(writer));
    CHECK_THROWS(std::logic_error, "at its end", writer.finish());
  };
  const auto begins = [](std::string name, RowFormat format, std::uint64_t rows) {
    return [=](SegmentWriter& writer) {
      writer.begin_table(name, format, KeyKind::kHashed, rows, Duplicates::kRefuse);
    };
  };
  refused("1 to 512 bytes", begins("", kOne, 1));
  refused("1 to 512 bytes", begins(std::string(513, 'x'), kOne, 1));
  refused("UTF-8", begins("\xC0\x80", kOne, 1));
  refused("one of this name already", begins("x", kOne, 1));
  refused("1 to 1024 numbers, not 0", begins("y", {RowType::kF32, 0}, 1));
  refused("1 to 1024 numbers, not 1025", begins("y", {RowType::kF32, 1025}, 1));
  refused("unknown row type", begins("y", {static_cast<RowType>(4), 1}, 1));
  refused("2147483648 rows are more", begins("y", kOne, std::uint64_t{1} << 31));
  refused("5 numbers are no whole rows of 4",
          [](SegmentWriter& writer) { writer.add(Keys{1}, Values(5)); });
  refused("9 bytes are no whole rows of 8",
          [](SegmentWriter& writer) { writer.add_encoded(Keys{1}, std::vector<std::byte>(9)); });
  refused("2 keys do not go with 1 rows",
          [](SegmentWriter& writer) { writer.add(Keys{1, 2}, Values(4)); });
  refused("more than the 2 rows that were announced",
          [](SegmentWriter& writer) { writer.add(Keys{1, 2, 3}, Values(12)); });
  refused("row 1: int8 rows hold finite numbers only", [](SegmentWriter& writer) {
    writer.add(Keys{1}, Values(4));
    writer.add(Keys{2}, Values(4, NAN));
  });
  refused(
      "1 keys do not go", [](SegmentWriter& writer) { writer.add(Keys{1}, Values(4)); },
      KeyKind::kDenseId);
  refused(
      "1 of 2 rows came; dense ids need every one",
      [](SegmentWriter& writer) {
        writer.add({}, Values(4));
        writer.finish();
      },
      KeyKind::kDenseId);
  CHECK(folder.names().empty());
}

TEST(rows_need_a_table_and_files_need_names) {
  const Folder folder;
  SegmentWriter writer(folder.path(), "a.seg", 1);
  CHECK_THROWS(std::logic_error, "begin_table() comes before", writer.add(Keys{1}, Values{1}));
  SegmentWriter encoded(folder.path(), "a.seg", 1);
  CHECK_THROWS(std::logic_error, "begin_table() comes before",
               encoded.add_encoded(Keys{1}, std::vector<std::byte>(3)));
  for (const char* name : {"", ".", "..", "a/b"}) {
    CHECK_THROWS(std::invalid_argument, "not the name of a file",
                 SegmentWriter(folder.path(), name, 1));
  }
  CHECK_THROWS(std::system_error, "cannot open the folder",
               SegmentWriter(folder.path("missing"), "a.seg", 1));
}

TEST(a_name_that_is_taken_stays_as_it_is) {
  const Folder folder;
  SegmentWriter late(folder.path(), "a.seg", 2);
  SegmentWriter(folder.path(), "a.seg", 1).finish();
  try {
    late.finish();
    CHECK(false);
  } catch (const std::system_error& error) {
    CHECK_EQ(error.code().value(), EEXIST);
    CHECK(std::string(error.what()).find(folder.path()) == std::string::npos);
  }
  CHECK_EQ(map_file(folder.path("a.seg"))->model_version(), 1u);
}

TEST(a_writer_that_is_dropped_leaves_nothing) {
  const Folder folder;
  {
    SegmentWriter writer(folder.path(), "a.seg", 1);
    write_rows(writer, 10);
    CHECK_EQ(folder.names().size(), 1u);
  }
  CHECK(folder.names().empty());
}

// The limit on the size of files stands for the end of the disk: at any point of the writing.
TEST(a_full_disk_leaves_nothing) {
  const Folder folder;
  constexpr std::size_t kRows = 6000;
  std::uint64_t whole = 0;
  {
    SegmentWriter writer(folder.path(), "whole.seg", 1);
    write_rows(writer, kRows);
    whole = writer.finish();
    std::filesystem::remove(folder.path("whole.seg"));
  }
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{4096},
                                    std::uint64_t{4 << 20}, std::uint64_t{5000000}, whole - 1}) {
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit size = {limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &size);
      try {
        SegmentWriter writer(folder.path(), "a.seg", 1);
        write_rows(writer, kRows);
        writer.finish();
      } catch (const std::system_error& error) {
        ::_exit(error.code().value());
      }
    });
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), EFBIG);
    CHECK(folder.names().empty());
  }
}

TEST(a_killed_writer_leaves_a_temporary_file_that_can_be_told) {
  const Folder folder;
  std::mt19937 random(1);
  for (int round = 0; round < 15; ++round) {
    int ready[2];
    CHECK_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      SegmentWriter writer(folder.path(), "a.seg", 1);
      ::close(ready[1]);
      write_rows(writer, 6000);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte;
    CHECK_EQ(::read(ready[0], &byte, 1), 0);  // its end of the pipe is closed: it has begun
    ::close(ready[0]);
    const auto names = folder.names();
    CHECK_EQ(names.size(), 1u);
    const std::string name = names.at(0);
    CHECK(name.starts_with(".segment-") && name.ends_with(".tmp"));
    const int fd = ::open(folder.path(name).c_str(), O_RDWR);
    CHECK_EQ(::flock(fd, LOCK_EX | LOCK_NB), -1);  // its writer lives
    ::usleep(random() % 5000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(folder.names() == names);
    CHECK_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
    CHECK_THROWS(std::exception, "", map_file(folder.path(name)));
    ::close(fd);
    std::filesystem::remove(folder.path(name));
  }
}

// Killed while it publishes: the name is either absent or a whole file.
TEST(a_kill_at_any_point_leaves_the_whole_file_or_none) {
  const Folder folder;
  std::mt19937 random(2);
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      SegmentWriter writer(folder.path(), "a.seg", 1);
      write_rows(writer, 300);
      writer.finish();
      for (;;) ::pause();
    }
    ::usleep(random() % 20000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (std::filesystem::exists(folder.path("a.seg"))) map_file(folder.path("a.seg"))->verify();
    for (const std::string& name : folder.names()) std::filesystem::remove(folder.path(name));
  }
}

int main() { return anabranch::testing::run_tests(); }
