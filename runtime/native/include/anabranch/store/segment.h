// Segment files: immutable tables on disk, with prebuilt indexes and aligned rows, ready to map.
//
// One file holds one or more tables. It is written once with large write(2) calls under a temporary
// name, synced, and renamed into place without replacing; so a segment is whole or absent, and its
// pages come in pieces of 2 MiB where the file system can. Byte layout: docs/formats.md,
// "Segments".
//
// A published file is never written or cut short again: who truncates one that is mapped stops the
// processes that read it (SIGBUS), and so does a disk that fails under a mapping. Where that is to
// be feared (network file systems, FUSE), `Segment::copy` reads the file into memory first.
//
// Thread-safety: a SegmentWriter belongs to one thread; a Segment is immutable.
// Units: bytes; rows count rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anabranch/store/rows.h"

namespace anabranch::store {

enum class KeyKind : std::uint32_t { kHashed = 0, kDenseId = 1 };

struct SegmentTable {
  std::string name;  // UTF-8, at most 512 bytes
  RowFormat format;
  KeyKind keys;
  std::uint32_t rows;       // distinct keys
  std::uint64_t seed;       // of its hash; 0 for dense ids
  std::uint64_t groups;     // of its index; 0 for dense ids
  std::uint64_t off_index;  // of groups + 1 groups; 0 for dense ids
  std::uint64_t off_keys;   // of `rows` keys in row order; 0 for dense ids
  std::uint64_t off_rows;
};

enum class Duplicates { kRefuse, kLastWins };

// Writes one segment. Memory: the index and the keys of the table that is being written (35 bytes
// per row of `most_rows`) and a few MiB; rows go to the file as they come.
// A duplicate key keeps the number of its first row, whose bytes the later row replaces where the
// last one wins: `rows` counts distinct keys, and nothing is left over.
class SegmentWriter {
 public:
  // Begins a file in `folder` that is to become `folder/name`; until then it is called
  // `.segment-XXXXXXXXXXXXXXXX.tmp`, and locked: see docs/formats.md for those that were left over.
  // Throws std::invalid_argument where `name` is not the name of a file, and std::system_error.
  SegmentWriter(const std::string& folder, const std::string& name, std::uint64_t model_version);
  // Removes what was not finished.
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // Begins a table; the one before it is finished. `most_rows` bounds how many rows may come; for
  // dense ids exactly so many must. Throws std::invalid_argument for a name, dim or count that
  // cannot be, and whatever finishing the table before throws.
  void begin_table(const std::string& name, RowFormat format, KeyKind keys, std::uint64_t most_rows,
                   Duplicates duplicates);

  // Adds rows: `values` are row-major [n, dim] f32; `keys` are n keys, empty for dense ids, whose
  // rows come in order. Throws Refused (duplicate key, rows int8 cannot hold, too many rows),
  // StoreFull (the keys crowd under every seed: they are no accident), std::invalid_argument (sizes
  // that do not go together) and std::system_error (disk full). After a throw of any member the
  // writer can only be destroyed.
  void add(std::span<const std::uint64_t> keys, std::span<const float> values);
  // As `add`, for rows that are encoded already: n * format.stride() bytes.
  void add_encoded(std::span<const std::uint64_t> keys, std::span<const std::byte> rows);

  // Finishes the last table and publishes the file: checksums, fsync, rename without replacing,
  // fsync of the folder. Returns its size. Throws std::system_error (EEXIST where the name is
  // taken) and Refused (a dense-id table is short of rows).
  std::uint64_t finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

enum class Residency { kLazy, kPopulated, kLocked };

// A segment that is mapped, or was copied into memory. Every access through it stays inside.
class Segment {
 public:
  // Maps the file behind `fd`, which stays the caller's and may be closed afterwards; checks the
  // header and that every section lies inside the file, but not the checksums of the sections.
  // kLocked throws std::system_error where the limit of locked memory is too low.
  // Throws Damaged, Foreign, std::system_error.
  static std::shared_ptr<const Segment> map(int fd, Residency residency = Residency::kLazy);

  // Copies the file into sealed shared memory and collapses it into huge pages where the system
  // lets it; the descriptor of that memory (`memory_fd`) maps like a file. Throws as `map` does.
  static std::shared_ptr<const Segment> copy(int fd);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Reads everything: compares the checksums of all blocks, checks every index, and looks up every
  // key. Calls `progress` with the bytes whose checksums were compared. Throws Damaged, which names
  // the section and table.
  void verify(const std::function<void(std::uint64_t)>& progress = {}) const;
  // Reads the index of a table once from front to back: every row number is below `rows`, every
  // slot has kFirstVersion, every key lies where a lookup finds it, there are `rows` of them.
  // Mapping does not do this: who uses row numbers of an index calls it first, or checks as it
  // copies. Throws Damaged; nothing to do for dense ids.
  void check_index(std::size_t table) const;

  std::uint64_t model_version() const noexcept;
  std::uint32_t format() const noexcept;
  std::uint64_t bytes() const noexcept;
  std::span<const SegmentTable> tables() const noexcept;
  const std::byte* data() const noexcept;  // the whole file
  int memory_fd() const noexcept;          // -1 where it is mapped from a file

  // Share of the mapped bytes that lie in huge pages, as the kernel tells; 0 where it does not. It
  // walks the page tables of the whole process: for metrics and reports.
  double huge_page_ratio() const;
  // Mean and greatest number of groups that a hit looks at, side slots left out; counted anew.
  // 0 where there is no key, 1 for dense ids.
  struct Probes {
    double mean;
    std::uint32_t most;
  };
  Probes probes(std::size_t table) const;

 private:
  struct State;
  explicit Segment(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anabranch::store
