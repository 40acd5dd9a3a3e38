// Speed of the writer of an embedding store: rows per second of one core, best and median of many
// changes. Updates of rows that exist, D=32 f32, readers following at once.
//
//   cmake --build build/native-plain --target store_writer_bench
//   .../store_writer_bench [rows of the table, default 2000000] [rows of a change, default 100000]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "anabranch/store/writer.h"

using namespace anabranch::store;

namespace {

constexpr std::uint32_t kDim = 32;
constexpr int kChanges = 40;

std::shared_ptr<const Segment> segment_of(const std::vector<std::uint64_t>& keys) {
  std::string folder = "/tmp/anabranch-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) std::abort();
  SegmentWriter writer(folder, "base", 1);
  writer.begin_table("t", {RowType::kF32, kDim}, KeyKind::kHashed, keys.size(),
                     Duplicates::kRefuse);
  constexpr std::size_t kPiece = 10000;
  const std::vector<float> values(kPiece * kDim, 0.5f);
  for (std::size_t begin = 0; begin < keys.size(); begin += kPiece) {
    const std::size_t count = std::min(kPiece, keys.size() - begin);
    writer.add(std::span(keys).subspan(begin, count), std::span(values).first(count * kDim));
  }
  writer.finish();
  const std::string path = folder + "/base";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto segment = Segment::map(fd);
  ::close(fd);
  ::unlink(path.c_str());
  ::rmdir(folder.c_str());
  return segment;
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void report(const char* what, std::vector<double> seconds, std::size_t rows) {
  std::sort(seconds.begin(), seconds.end());
  const auto rate = [&](double s) { return static_cast<double>(rows) / s / 1e6; };
  std::printf("%-34s best %7.2f   median %7.2f M rows/s\n", what, rate(seconds.front()),
              rate(seconds[seconds.size() / 2]));
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t rows = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 2000000;
  const std::size_t changed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 100000;
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> keys(rows);
  for (std::uint64_t& key : keys) key = random();
  const auto segment = segment_of(keys);
  const Capacity capacities[] = {
      {static_cast<std::uint32_t>(rows + 3 * changed), static_cast<std::uint32_t>(rows)}};
  double begin = processor_seconds();
  const auto writer = StoreWriter::create(segment, capacities);
  std::printf("create %.3f s, huge pages %.2f\n", processor_seconds() - begin,
              writer->huge_page_ratio());

  std::vector<double> upserts, applies, both, reclaims;
  const std::vector<float> values(changed * kDim, 1.0f);
  // As after hours of changes: every row lies in the arena, all of which was touched.
  begin = processor_seconds();
  for (std::size_t first = 0; first < rows; first += changed) {
    const std::size_t now = std::min(changed, rows - first);
    Change change = writer->begin();
    change.upsert(0, std::span(keys).subspan(first, now), std::span(values).first(now * kDim));
    change.apply();
    writer->reclaim(writer->version());
  }
  std::printf("first time, untouched arena %13.2f M rows/s\n",
              static_cast<double>(rows) / (processor_seconds() - begin) / 1e6);
  std::vector<std::uint64_t> some(changed);
  for (int i = 0; i < kChanges; ++i) {
    for (std::uint64_t& key : some) key = keys[random() % rows];
    Change change = writer->begin();
    begin = processor_seconds();
    change.upsert(0, some, values);
    const double upserted = processor_seconds();
    change.apply();
    const double applied = processor_seconds();
    writer->reclaim(writer->version());
    upserts.push_back(upserted - begin);
    applies.push_back(applied - upserted);
    both.push_back(applied - begin);
    reclaims.push_back(processor_seconds() - applied);
  }
  report("upsert", upserts, changed);
  report("apply", applies, changed);
  report("upsert and apply", both, changed);
  report("reclaim", reclaims, changed);

  const auto stats = writer->stats(0);
  const auto bytes = writer->bytes();
  std::printf("load %.2f, %.2f groups a hit, index %.1f, undo %.1f, books %.1f bytes a key\n",
              stats.load, stats.mean_probe,
              static_cast<double>(bytes.index) / static_cast<double>(rows),
              static_cast<double>(bytes.undo) / static_cast<double>(rows),
              static_cast<double>(bytes.books) / static_cast<double>(rows));
  begin = processor_seconds();
  const auto grown = writer->grow(capacities)->finish();
  std::printf("growth %.2f M rows/s\n",
              static_cast<double>(rows) / (processor_seconds() - begin) / 1e6);
}
