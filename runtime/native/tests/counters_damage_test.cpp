// Whatever a page holds, reading it ends, stays inside it, and never makes up a series.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include "anabranch/aligned_buffer.h"
#include "anabranch/counters_page.h"
#include "anabranch/counters_reader.h"
#include "check.h"

using namespace anabranch;

namespace {

constexpr std::size_t kHeaderBytes = 64;

// A page with some of everything, as ordinary memory of exactly its size.
AlignedBuffer sample_page() {
  CountersPage page(4096);
  const std::vector<Label> labels = {{"model", "ctr"}, {"version", "7"}};
  const std::vector<double> bounds = {0.001, 0.01, 0.1};
  page.add(page.counter("requests_total", labels), std::uint64_t{5});
  page.retire(page.counter("gone_total", labels));
  page.observe(page.histogram("duration_seconds", labels, bounds), 0.02);
  page.set(page.gauge("ready", {}), 1);
  AlignedBuffer copy = AlignedBuffer::uninitialized(page.bytes().size());
  std::memcpy(copy.data(), page.bytes().data(), copy.size_bytes());
  return copy;
}

std::span<std::byte> span_of(const AlignedBuffer& buffer) {
  return {buffer.data(), buffer.size_bytes()};
}

void set_word(std::span<std::byte> page, std::size_t offset, std::uint64_t value) {
  std::memcpy(page.data() + offset, &value, sizeof value);
}

std::uint64_t word(std::span<const std::byte> page, std::size_t offset) {
  std::uint64_t value;
  std::memcpy(&value, page.data() + offset, sizeof value);
  return value;
}

// A memfd of these bytes with these seals.
int memfd_of(std::span<const std::byte> bytes, int seals) {
  const int fd = ::memfd_create("damaged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  CHECK_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

}  // namespace

TEST(every_flipped_bit_of_the_directory_is_noticed_or_hides_one_series) {
  const AlignedBuffer buffer = sample_page();
  const auto page = span_of(buffer);
  const std::size_t end = word(page, 24);
  std::size_t noticed = 0;
  for (std::size_t bit = 0; bit < 8 * end; ++bit) {
    const std::size_t at = bit / 8;
    page[at] ^= static_cast<std::byte>(1 << bit % 8);
    try {
      // The reserved words, and padding behind a text, mean nothing. A sequence word made odd says
      // "half-written"; any other sequence is as good as the right one.
      CHECK(read_counters(page).size() >= 2);
      for (const Series& series : read_counters(page)) {
        CHECK(series.name == "requests_total" || series.name == "duration_seconds" ||
              series.name == "ready");
      }
    } catch (const DamagedPage&) {
      ++noticed;
    }
    page[at] ^= static_cast<std::byte>(1 << bit % 8);
  }
  CHECK_EQ(read_counters(page).size(), 3u);
  CHECK(noticed > 8 * end / 2);
}

TEST(truncated_pages_are_refused) {
  const AlignedBuffer buffer = sample_page();
  for (std::size_t size = 0; size < buffer.size_bytes(); size += 8) {
    AlignedBuffer cut = AlignedBuffer::uninitialized(size);
    std::memcpy(cut.data(), buffer.data(), size);
    CHECK_THROWS(DamagedPage, "truncated", read_counters(span_of(cut)));
  }
}

TEST(header_faults_have_their_own_messages) {
  const AlignedBuffer buffer = sample_page();
  const auto page = span_of(buffer);
  const auto with = [&](std::size_t offset, std::uint64_t value, const char* message) {
    const std::uint64_t before = word(page, offset);
    set_word(page, offset, value);
    CHECK_THROWS(DamagedPage, message, read_counters(page));
    set_word(page, offset, before);
  };
  with(0, 0, "not a counters page");
  with(8, std::uint64_t{64} << 32 | 2, "has format 2, this reader knows 1");
  with(16, 8192, "damaged header");
  with(24, 8, "damaged header");
  with(24, 4096, "damaged header");
  with(32, 100000, "damaged header");
}

TEST(record_faults_name_the_record) {
  const AlignedBuffer buffer = sample_page();
  const auto page = span_of(buffer);
  const auto with = [&](std::size_t word_number, std::uint64_t value, const char* message) {
    const std::size_t offset = kHeaderBytes + 8 * word_number;
    const std::uint64_t before = word(page, offset);
    set_word(page, offset, value);
    CHECK_THROWS(DamagedPage, (std::string("record at byte 64: ") + message).c_str(),
                 read_counters(page));
    set_word(page, offset, before);
  };
  with(1, 0, "impossible size");
  with(1, std::uint64_t{8} << 32 | 100000, "impossible size");
  with(1, std::uint64_t{1000} << 32 | 128, "values outside the page");
  with(2, 0, "values outside the page");
  with(2, ~std::uint64_t{63}, "values outside the page");
  with(3, std::uint64_t{5000} << 32 | 1, "text outside the record");
  with(4, 0, "checksum mismatch");
}

TEST(a_record_left_half_written_is_skipped) {
  const AlignedBuffer buffer = sample_page();
  const auto page = span_of(buffer);
  set_word(page, kHeaderBytes, word(page, kHeaderBytes) + 1);
  const auto all = read_counters(page);
  CHECK_EQ(all.size(), 2u);
  CHECK_EQ(all.at(0).name, "duration_seconds");
}

TEST(mutated_pages_never_stop_the_reader) {
  std::mt19937_64 random(5);
  const AlignedBuffer sample = sample_page();
  AlignedBuffer buffer = AlignedBuffer::uninitialized(sample.size_bytes());
  const auto page = span_of(buffer);
  const std::uint64_t telling[] = {0,       1, 2, 3, 40, 64, 128, 4032, 4096, ~std::uint64_t{0},
                                   1u << 31};
  for (int round = 0; round < 20000; ++round) {
    std::memcpy(page.data(), sample.data(), page.size());
    for (std::uint64_t faults = 1 + random() % 4; faults > 0; --faults) {
      const std::size_t at = 8 * (random() % (random() % 2 == 0 ? 64 : page.size() / 8));
      const std::uint64_t low = telling[random() % std::size(telling)];
      const std::uint64_t high = telling[random() % std::size(telling)];
      set_word(page, at, random() % 3 == 0 ? random() : high << 32 ^ low);
    }
    try {
      read_counters(page);
    } catch (const DamagedPage&) {
    }
  }
}

TEST(descriptors_that_are_no_page_are_refused) {
  const AlignedBuffer buffer = sample_page();
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int good = memfd_of(span_of(buffer), seals);
  CHECK_EQ(CountersReader(good).read().size(), 3u);
  const int unsealed = memfd_of(span_of(buffer), F_SEAL_GROW);
  CHECK_THROWS(DamagedPage, "its size is not sealed", CountersReader{unsealed});
  const int small = memfd_of(span_of(buffer).first(100), seals);
  CHECK_THROWS(DamagedPage, "it has 100 bytes", CountersReader{small});
  CHECK_THROWS(std::system_error, "cannot open", CountersReader{-1});
  int pipe_ends[2];
  CHECK_EQ(::pipe(pipe_ends), 0);
  CHECK_THROWS(DamagedPage, "not sealed", CountersReader{pipe_ends[0]});
  for (const int fd : {good, unsealed, small, pipe_ends[0], pipe_ends[1]}) ::close(fd);
}

int main() { return anabranch::testing::run_tests(); }
