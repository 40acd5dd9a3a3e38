#include "store/segments/segment_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <system_error>

#include "anabranch/crc32c.h"
#include "anabranch/store/errors.h"
#include "anabranch/store/slots.h"
#include "store/segments/table_name.h"

namespace anabranch::store {
namespace {

using namespace segment_layout;

// Bounds what a damaged header can make this process allocate.
constexpr std::uint64_t kMaxDirectoryBytes =
    kMaxTables * (sizeof(Record) + kMaxNameBytes) + kAlignment;

[[noreturn]] void damaged(const std::string& what) { throw Damaged("segment " + what); }

bool is_inside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t end) noexcept {
  return offset <= end && bytes <= end - offset;
}

std::uint64_t file_bytes_of(int fd) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot open a segment");
  }
  if (!S_ISREG(status.st_mode)) {
    throw std::system_error(EINVAL, std::generic_category(), "a segment is a regular file");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

SegmentTable table_of(const Record& record, std::string name, std::uint64_t data_end) {
  const auto fault = [&](const char* what) {
    damaged("directory: table \"" + name + "\": " + what);
  };
  if (record.row_type > static_cast<std::uint32_t>(RowType::kInt8)) fault("unknown row type");
  if (record.dim == 0 || record.dim > RowFormat::kMaxDim)
    fault("rows do not have 1 to 1024 numbers");
  if (record.rows > kMaxRow) fault("too many rows");
  if (record.key_kind > static_cast<std::uint32_t>(KeyKind::kDenseId))
    fault("unknown kind of keys");
  const auto keys = static_cast<KeyKind>(record.key_kind);
  if (keys == KeyKind::kDenseId) {
    if ((record.groups | record.seed | record.off_index | record.off_keys) != 0) {
      fault("dense ids have no index");
    }
  } else if (record.groups != groups_for(record.rows)) {
    // Also where it lies inside the file, whose holes cost nothing: a generation copies all of it.
    fault("an index of impossible size");
  }
  SegmentTable table{std::move(name),
                     {static_cast<RowType>(record.row_type), record.dim},
                     keys,
                     record.rows,
                     record.seed,
                     record.groups,
                     record.off_index,
                     record.off_keys,
                     record.off_rows};
  for (const Section& section : sections_of(table)) {
    if (section.begin % kAlignment != 0 || section.begin < sizeof(Header) ||
        section.end < section.begin || section.end > data_end) {
      damaged("directory: " + section.name + " do not lie inside the file");
    }
  }
  return table;
}

}  // namespace

std::vector<Section> sections_of(const SegmentTable& table) {
  const auto section = [&](const char* what, std::uint64_t begin, std::uint64_t bytes) {
    return Section{"table \"" + table.name + "\": " + what, begin, begin + bytes};
  };
  const std::uint64_t rows = table.rows;
  std::vector<Section> all = {section("rows", table.off_rows, rows * table.format.stride())};
  if (table.keys == KeyKind::kHashed) {
    all.push_back(section("keys", table.off_keys, rows * sizeof(std::uint64_t)));
    all.push_back(section("index groups", table.off_index, (table.groups + 1) * sizeof(Group)));
  }
  return all;
}

Header read_header(int fd) {
  const std::uint64_t file_bytes = file_bytes_of(fd);
  Header header;
  if (file_bytes < sizeof header + sizeof(Footer)) {
    damaged("header: the file has " + std::to_string(file_bytes) +
            " bytes: it is truncated, or not a segment");
  }
  const ssize_t got = ::pread(fd, &header, sizeof header, 0);
  if (got < 0) throw std::system_error(errno, std::generic_category(), "cannot read a segment");
  if (got != sizeof header) damaged("header: the file was truncated while it was read");
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    damaged("header: the file does not begin as a segment does");
  }
  if (header.endian_tag == __builtin_bswap32(kEndianTag)) {
    throw Foreign(
        "the segment was written in big-endian byte order: build it again on a "
        "little-endian machine");
  }
  if (header.crc != crc32c(bytes_of(header).first(offsetof(Header, crc)))) {
    damaged("header: its checksum does not match: copy or build the file again");
  }
  if (header.endian_tag != kEndianTag) damaged("header: unknown byte order");
  if (header.format > kFormat) {
    throw Foreign("the segment has format " + std::to_string(header.format) +
                  ", this version knows up to " + std::to_string(kFormat) + ": upgrade");
  }
  if (header.format == 0) damaged("header: format 0");
  if (header.file_bytes != file_bytes) {
    damaged("header: it tells of " + std::to_string(header.file_bytes) + " bytes, the file has " +
            std::to_string(file_bytes) + ": copy or build it again");
  }
  const std::uint64_t body = file_bytes - sizeof(Footer);
  if (header.tables > kMaxTables || header.directory_bytes > kMaxDirectoryBytes ||
      header.directory_bytes < header.tables * sizeof(Record) ||
      header.off_directory < sizeof header || header.off_directory % kAlignment != 0 ||
      !is_inside(header.off_directory, header.directory_bytes, body) ||
      header.off_checksums != header.off_directory + header.directory_bytes ||
      block_count(header.off_checksums) * sizeof(std::uint32_t) != body - header.off_checksums) {
    damaged("header: its sections do not fill the file");
  }
  return header;
}

SegmentDirectory read_directory(const Header& header, std::span<const std::byte> file) {
  Footer footer;
  std::memcpy(&footer, file.data() + file.size() - sizeof footer, sizeof footer);
  if (std::memcmp(footer.magic, kFooterMagic, sizeof kFooterMagic) != 0 ||
      footer.header_crc != header.crc || footer.checksums_crc != header.checksums_crc) {
    damaged("footer: it does not go with the header: copy or build the file again");
  }
  const auto mapped = file.subspan(header.off_directory, header.directory_bytes);
  const std::vector<std::byte> bytes(mapped.begin(), mapped.end());
  if (crc32c(bytes) != header.directory_crc) {
    damaged("directory: its checksum does not match: copy or build the file again");
  }
  SegmentDirectory directory{header, {}};
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < header.tables; ++i) {
    Record record;
    std::memcpy(&record, bytes.data() + i * sizeof record, sizeof record);
    std::string name;
    if (is_inside(record.name_offset, record.name_bytes, bytes.size())) {
      name.assign(reinterpret_cast<const char*>(bytes.data()) + record.name_offset,
                  record.name_bytes);
    }
    if (!is_table_name(name) || !names.insert(name).second) {
      damaged("directory: table " + std::to_string(i) + " has no name of its own");
    }
    directory.tables.push_back(table_of(record, std::move(name), header.off_directory));
  }
  return directory;
}

}  // namespace anabranch::store
