#include "anabranch/counters_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <system_error>
#include <thread>

#include "counters_layout.h"
#include "counters_text.h"

namespace anabranch {
namespace {

using namespace counters_layout;

constexpr int kAttempts = 1000;  // a rewrite takes about a microsecond

std::uint64_t word(std::span<const std::byte> page, std::size_t offset) {
  return load(reinterpret_cast<const std::uint64_t*>(page.data() + offset),
              std::memory_order_acquire);
}

void copy_words(std::span<const std::byte> page, std::size_t offset, std::size_t count,
                std::vector<std::uint64_t>& into) {
  into.resize(count);
  for (std::size_t i = 0; i < count; ++i) into[i] = word(page, offset + 8 * i);
}

[[noreturn]] void damaged(std::size_t offset, const char* what) {
  throw DamagedPage("counters page, record at byte " + std::to_string(offset) + ": " + what);
}

// Where the directory ends and the values begin, checked against the page.
struct Extent {
  std::size_t directory_end;
  std::size_t values_begin;
};

Extent read_header(std::span<const std::byte> page) {
  if (page.size() < CountersPage::kMinBytes) throw DamagedPage("counters page is truncated");
  if (word(page, 8 * kMagicWord) != kMagic) throw DamagedPage("not a counters page");
  const std::uint64_t format = word(page, 8 * kFormatWord);
  if (low_half(format) != kFormat) {
    throw DamagedPage("counters page has format " + std::to_string(low_half(format)) +
                      ", this reader knows " + std::to_string(kFormat));
  }
  // The end is loaded first: a later one would name records below the values that it was read with.
  const std::size_t end = word(page, 8 * kDirectoryEndWord);
  const std::size_t values = word(page, 8 * kValuesBeginWord);
  if (high_half(format) != kHeaderBytes || word(page, 8 * kPageBytesWord) != page.size() ||
      end < kHeaderBytes || end > values || values > page.size() || end % kGranule != 0 ||
      values % kGranule != 0) {
    throw DamagedPage("counters page has a damaged header");
  }
  return {end, values};
}

Series decode(std::size_t offset, std::uint32_t kind, std::string_view text,
              std::span<const std::uint64_t> values) {
  Series series{};
  series.kind = static_cast<SeriesKind>(kind);
  if (!read_text(text, series)) damaged(offset, "malformed text");
  if (kind > static_cast<std::uint32_t>(SeriesKind::kHistogram) ||
      value_words(series.kind, series.bounds.size()) > values.size()) {
    damaged(offset, "impossible kind or number of values");
  }
  series.value = std::bit_cast<double>(values[0]);
  if (series.kind == SeriesKind::kCounter) {
    series.value = static_cast<double>(values[0]) + std::bit_cast<double>(values[1]);
  } else if (series.kind == SeriesKind::kHistogram) {
    const auto buckets = values.subspan(1, series.bounds.size() + 1);
    series.buckets.assign(buckets.begin(), buckets.end());
  }
  return series;
}

// Nothing when the record is retired or stays half-written.
std::optional<Series> read_record(std::span<const std::byte> page, std::size_t offset,
                                  std::size_t record_bytes, const Extent& extent) {
  const std::size_t value_count = high_half(word(page, offset + 8 * kSizeWord));
  const std::size_t values_at = word(page, offset + 8 * kValuesWord);
  if (values_at < extent.values_begin || values_at > page.size() || values_at % kGranule != 0 ||
      value_count > (page.size() - values_at) / 8) {
    damaged(offset, "values outside the page");
  }
  std::vector<std::uint64_t> record;
  std::vector<std::uint64_t> values;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::yield();
    const std::uint64_t sequence = word(page, offset);
    if (sequence % 2 != 0) continue;
    copy_words(page, offset, record_bytes / 8, record);
    copy_words(page, values_at, value_count, values);
    if (word(page, offset) != sequence) continue;

    const std::uint32_t kind = low_half(record[kKindWord]);
    const std::size_t text_bytes = high_half(record[kKindWord]);
    if (text_bytes > record_bytes - kRecordHeaderBytes) damaged(offset, "text outside the record");
    const std::string_view text(reinterpret_cast<const char*>(record.data()) + kRecordHeaderBytes,
                                text_bytes);
    if (record_checksum(record.data(), text) != record[kChecksumWord]) {
      damaged(offset, "checksum mismatch");
    }
    if (kind == 0) return std::nullopt;
    return decode(offset, kind, text, values);
  }
  return std::nullopt;
}

}  // namespace

std::vector<Series> read_counters(std::span<const std::byte> page) {
  const Extent extent = read_header(page);
  std::vector<Series> all;
  for (std::size_t offset = kHeaderBytes; offset < extent.directory_end;) {
    const std::size_t record_bytes = low_half(word(page, offset + 8 * kSizeWord));
    if (record_bytes < kGranule || record_bytes % kGranule != 0 ||
        record_bytes > extent.directory_end - offset) {
      damaged(offset, "impossible size");
    }
    if (auto series = read_record(page, offset, record_bytes, extent)) {
      all.push_back(*std::move(series));
    }
    offset += record_bytes;
  }
  return all;
}

CountersReader::CountersReader(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot open a counters page");
  }
  // Without the seal a page cut short under us would end this process with SIGBUS.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw DamagedPage("not a counters page: its size is not sealed");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < CountersPage::kMinBytes || size > CountersPage::kMaxBytes) {
    throw DamagedPage("not a counters page: it has " + std::to_string(size) + " bytes");
  }
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "cannot map a counters page");
  }
  page_ = {static_cast<const std::byte*>(mapped), size};
}

CountersReader::~CountersReader() { ::munmap(const_cast<std::byte*>(page_.data()), page_.size()); }

}  // namespace anabranch
