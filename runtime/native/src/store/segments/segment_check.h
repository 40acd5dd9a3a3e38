// Checks that read all of a table's index, or all of a file.
//
// Thread-safety: pure functions.
// Invariant: whatever the bytes are, no read leaves the table's sections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "anabranch/store/segment.h"
#include "store/segments/segment_directory.h"

namespace anabranch::store {

// Compares the checksum of every block. Throws Damaged, naming the sections that a block is of.
void check_blocks(const SegmentDirectory& directory, std::span<const std::byte> file,
                  const std::function<void(std::uint64_t)>& progress);

// As Segment::check_index says.
void check_index(const SegmentTable& table, const std::byte* file);

// Looks up every key of a table whose index is sound: each must lead to its own row. Throws
// Damaged.
void check_keys(const SegmentTable& table, const std::byte* file);

// As Segment::probes says.
Segment::Probes count_probes(const SegmentTable& table, const std::byte* file) noexcept;

}  // namespace anabranch::store
