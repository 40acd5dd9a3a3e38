// What a segment file says about itself, read with every number checked.
//
// Thread-safety: pure functions.
// Invariant: every section of a Directory lies inside the file, aligned to 64 bytes. What is
// checked is what is used: nothing is read twice from memory that somebody might change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anabranch/store/segment.h"
#include "store/segments/segment_layout.h"

namespace anabranch::store {

struct SegmentDirectory {
  segment_layout::Header header;
  std::vector<SegmentTable> tables;
};

// Reads the header of the file behind `fd` and compares it with the file's size. Throws Damaged,
// Foreign, std::system_error.
segment_layout::Header read_header(int fd);

// Reads the directory and the footer of a whole file with that header. Throws Damaged.
SegmentDirectory read_directory(const segment_layout::Header& header,
                                std::span<const std::byte> file);

// A part of the file that holds data of a table.
struct Section {
  std::string name;  // for messages: table "x": rows
  std::uint64_t begin;
  std::uint64_t end;
};
std::vector<Section> sections_of(const SegmentTable& table);

}  // namespace anabranch::store
