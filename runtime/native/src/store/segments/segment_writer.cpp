#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "anabranch/crc32c.h"
#include "anabranch/store/errors.h"
#include "anabranch/store/segment.h"
#include "store/segments/block_file.h"
#include "store/segments/index_builder.h"
#include "store/segments/pending_file.h"
#include "store/segments/segment_layout.h"
#include "store/segments/table_name.h"

namespace anabranch::store {
namespace {

using namespace segment_layout;

// Rows that are encoded before they go to the file, and stay in the cache until then.
constexpr std::size_t kScratchBytes = std::size_t{64} << 10;

std::string key_text(std::uint64_t key) {
  std::string text = std::to_string(key);
  if (key >> 63 != 0) text += " (" + std::to_string(static_cast<std::int64_t>(key)) + ")";
  return text;
}

}  // namespace

struct SegmentWriter::State {
  State(const std::string& folder, const std::string& name, std::uint64_t version)
      : file(folder, name), out(file), model_version(version) {}

  // The table that is being written.
  struct Open {
    SegmentTable table;
    std::uint64_t most_rows;
    std::uint64_t given = 0;  // rows that came, replaced ones counted
    Duplicates duplicates;
    std::optional<IndexBuilder> index;  // hashed tables
  };

  template <class Body>
  void guarded(Body&& body);
  const SegmentTable& current() const;
  template <class Fill>
  void add_rows(std::span<const std::uint64_t> keys, std::size_t count, Fill&& fill);
  void place_rows(std::span<const std::uint64_t> keys, std::span<const std::byte> rows);
  void finish_table();
  std::vector<std::byte> directory() const;

  [[noreturn]] void refuse(const std::string& why) const {
    throw Refused("table \"" + open->table.name + "\": " + why);
  }

  PendingFile file;
  BlockFile out;
  std::uint64_t model_version;
  std::vector<SegmentTable> tables;
  std::set<std::string> names;
  std::optional<Open> open;
  std::vector<std::byte> scratch = std::vector<std::byte>(kScratchBytes);
  std::vector<std::uint32_t> numbers;  // rows of the keys in scratch
  bool usable = true;                  // nothing has thrown, and the file is not published
};

// Runs the body of a member; if that throws, no other will run.
template <class Body>
void SegmentWriter::State::guarded(Body&& body) {
  if (!usable) throw std::logic_error("a segment writer is at its end after finish() or a failure");
  usable = false;
  body();
  usable = true;
}

const SegmentTable& SegmentWriter::State::current() const {
  if (!open) throw std::logic_error("begin_table() comes before the first row");
  return open->table;
}

// Adds `count` rows in pieces: fill(first, out) writes encoded rows from the first-th on.
template <class Fill>
void SegmentWriter::State::add_rows(std::span<const std::uint64_t> keys, std::size_t count,
                                    Fill&& fill) {
  const bool hashed = open->table.keys == KeyKind::kHashed;
  if (keys.size() != (hashed ? count : 0)) {
    throw std::invalid_argument("table \"" + open->table.name +
                                "\": " + std::to_string(keys.size()) + " keys do not go with " +
                                std::to_string(count) + " rows");
  }
  if (count > open->most_rows - open->given) {
    refuse("more than the " + std::to_string(open->most_rows) + " rows that were announced");
  }
  const std::size_t stride = open->table.format.stride();
  const std::size_t piece = kScratchBytes / stride;
  for (std::size_t first = 0; first < count; first += piece) {
    const std::size_t rows = std::min(piece, count - first);
    const std::span<std::byte> encoded(scratch.data(), rows * stride);
    fill(first, encoded);
    if (hashed) {
      place_rows(keys.subspan(first, rows), encoded);
    } else {
      out.append(encoded);
    }
    open->given += rows;
  }
}

// Appends the rows of new keys, and puts those of known keys in their old place.
void SegmentWriter::State::place_rows(std::span<const std::uint64_t> keys,
                                      std::span<const std::byte> rows) {
  const std::size_t stride = open->table.format.stride();
  numbers.resize(keys.size());
  std::size_t next = open->index->keys().size();
  open->index->add(keys, numbers);
  if (open->index->keys().size() - next == keys.size()) {
    out.append(rows);
    return;
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = rows.subspan(i * stride, stride);
    if (numbers[i] == next) {
      out.append(row);
      ++next;
    } else if (open->duplicates == Duplicates::kLastWins) {
      out.overwrite(open->table.off_rows + numbers[i] * stride, row);
    } else {
      refuse("key " + key_text(keys[i]) + " comes twice, in rows " + std::to_string(numbers[i]) +
             " and " + std::to_string(open->given + i));
    }
  }
}

void SegmentWriter::State::finish_table() {
  if (!open) return;
  SegmentTable& table = open->table;
  if (table.keys == KeyKind::kDenseId) {
    if (open->given != open->most_rows) {
      refuse(std::to_string(open->given) + " of " + std::to_string(open->most_rows) +
             " rows came; dense ids need every one");
    }
    table.rows = static_cast<std::uint32_t>(open->given);
  } else {
    IndexBuilder& index = *open->index;
    index.finish();
    table.rows = static_cast<std::uint32_t>(index.keys().size());
    table.seed = index.seed();
    table.groups = index.group_count();
    const auto keys = std::as_bytes(index.keys());
    out.pad(section_alignment(keys.size()));
    table.off_keys = out.position();
    out.append(keys);
    const auto groups = std::as_bytes(index.groups());
    out.pad(section_alignment(groups.size()));
    table.off_index = out.position();
    out.append(groups);
  }
  tables.push_back(std::move(table));
  open.reset();
}

// Records, then names, padded to the alignment of sections.
std::vector<std::byte> SegmentWriter::State::directory() const {
  std::uint64_t bytes = tables.size() * sizeof(Record);
  for (const SegmentTable& table : tables) bytes += table.name.size();
  std::vector<std::byte> all(round_up(bytes, kAlignment));
  std::size_t name_offset = tables.size() * sizeof(Record);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const SegmentTable& table = tables[i];
    const Record record{
        .off_rows = table.off_rows,
        .off_keys = table.off_keys,
        .off_index = table.off_index,
        .groups = table.groups,
        .seed = table.seed,
        .rows = table.rows,
        .dim = table.format.dim,
        .row_type = static_cast<std::uint32_t>(table.format.type),
        .key_kind = static_cast<std::uint32_t>(table.keys),
        .name_offset = static_cast<std::uint32_t>(name_offset),
        .name_bytes = static_cast<std::uint32_t>(table.name.size()),
    };
    std::memcpy(all.data() + i * sizeof record, &record, sizeof record);
    std::memcpy(all.data() + name_offset, table.name.data(), table.name.size());
    name_offset += table.name.size();
  }
  return all;
}

SegmentWriter::SegmentWriter(const std::string& folder, const std::string& name,
                             std::uint64_t model_version)
    : state_(std::make_unique<State>(folder, name, model_version)) {}

SegmentWriter::~SegmentWriter() = default;

void SegmentWriter::begin_table(const std::string& name, RowFormat format, KeyKind keys,
                                std::uint64_t most_rows, Duplicates duplicates) {
  State& state = *state_;
  state.guarded([&] {
    state.finish_table();
    if (!is_table_name(name)) {
      throw std::invalid_argument("the name of a table is UTF-8 of 1 to 512 bytes");
    }
    const auto fault = [&](const std::string& what) {
      throw std::invalid_argument("table \"" + name + "\": " + what);
    };
    if (!state.names.insert(name).second) fault("there is one of this name already");
    if (state.tables.size() == kMaxTables) fault("a segment holds at most 65536 tables");
    if (format.type > RowType::kInt8) fault("unknown row type");
    if (format.dim == 0 || format.dim > RowFormat::kMaxDim) {
      fault("rows have 1 to 1024 numbers, not " + std::to_string(format.dim));
    }
    if (most_rows > kMaxRow) {
      fault(std::to_string(most_rows) + " rows are more than the greatest number, 2^31 - 1");
    }
    state.out.pad(section_alignment(most_rows * format.stride()));
    SegmentTable table{name, format, keys, 0, 0, 0, 0, 0, state.out.position()};
    state.open.emplace(State::Open{std::move(table), most_rows, 0, duplicates, std::nullopt});
    if (keys == KeyKind::kHashed) state.open->index.emplace(most_rows);
  });
}

void SegmentWriter::add(std::span<const std::uint64_t> keys, std::span<const float> values) {
  State& state = *state_;
  state.guarded([&] {
    const RowFormat format = state.current().format;
    const std::size_t dim = format.dim;
    if (values.size() % dim != 0) {
      throw std::invalid_argument("table \"" + state.current().name +
                                  "\": " + std::to_string(values.size()) +
                                  " numbers are no whole rows of " + std::to_string(dim));
    }
    state.add_rows(keys, values.size() / dim, [&](std::size_t first, std::span<std::byte> rows) {
      const std::size_t count = rows.size() / format.stride();
      try {
        encode_rows(format, values.subspan(first * dim, count * dim), rows, state.open->given);
      } catch (const Refused& refused) {
        state.refuse(refused.what());
      }
    });
  });
}

void SegmentWriter::add_encoded(std::span<const std::uint64_t> keys,
                                std::span<const std::byte> rows) {
  State& state = *state_;
  state.guarded([&] {
    const RowFormat format = state.current().format;
    const std::size_t stride = format.stride();
    if (rows.size() % stride != 0) {
      throw std::invalid_argument("table \"" + state.current().name +
                                  "\": " + std::to_string(rows.size()) +
                                  " bytes are no whole rows of " + std::to_string(stride));
    }
    state.add_rows(keys, rows.size() / stride, [&](std::size_t first, std::span<std::byte> piece) {
      std::memcpy(piece.data(), rows.data() + first * stride, piece.size());
      const std::size_t used = format.bytes();
      for (std::size_t at = 0; at < piece.size() && used < stride; at += stride) {
        std::memset(piece.data() + at + used, 0, stride - used);
      }
    });
  });
}

std::uint64_t SegmentWriter::finish() {
  State& state = *state_;
  Header header{};
  state.guarded([&] {
    state.finish_table();
    BlockFile& out = state.out;
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.endian_tag = kEndianTag;
    header.format = kFormat;
    header.model_version = state.model_version;
    header.tables = static_cast<std::uint32_t>(state.tables.size());

    out.pad(kAlignment);
    const std::vector<std::byte> directory = state.directory();
    header.off_directory = out.position();
    header.directory_bytes = directory.size();
    header.directory_crc = crc32c(directory);
    out.append(directory);

    const std::vector<std::uint32_t> checksums = out.checksums();
    header.off_checksums = out.position();
    header.checksums_crc = crc32c(std::as_bytes(std::span(checksums)));
    out.append(std::as_bytes(std::span(checksums)));
    header.file_bytes = out.position() + sizeof(Footer);
    header.crc = crc32c(bytes_of(header).first(offsetof(Header, crc)));

    Footer footer{};
    std::memcpy(footer.magic, kFooterMagic, sizeof kFooterMagic);
    footer.header_crc = header.crc;
    footer.checksums_crc = header.checksums_crc;
    out.append(bytes_of(footer));
    out.finish(bytes_of(header));
    state.file.publish();
  });
  state.usable = false;
  return header.file_bytes;
}

}  // namespace anabranch::store
