#include "anabranch/aligned_buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "check.h"

using anabranch::AlignedBuffer;

namespace {

bool is_aligned(const AlignedBuffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment == 0;
}

}  // namespace

TEST(blocks_of_any_size_are_aligned_and_zeroed) {
  for (const std::size_t size : {0, 1, 63, 64, 65, 4096, 1000003}) {
    const AlignedBuffer buffer = AlignedBuffer::zeroed(size);
    CHECK(is_aligned(buffer));
    CHECK_EQ(buffer.size_bytes(), size);
    CHECK(std::all_of(buffer.data(), buffer.data() + size,
                      [](std::byte b) { return b == std::byte{0}; }));
    CHECK(is_aligned(AlignedBuffer::uninitialized(size)));
  }
}

TEST(moving_hands_the_block_over) {
  AlignedBuffer first = AlignedBuffer::zeroed(100);
  std::byte* const block = first.data();
  std::memset(block, 7, 100);
  const AlignedBuffer second = std::move(first);
  CHECK(second.data() == block);
  CHECK(second.data()[99] == std::byte{7});
}

TEST(impossible_sizes_throw) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  for (const std::size_t size : {kMost, kMost - 63, kMost / 2, std::size_t{1} << 60}) {
    CHECK_THROWS(std::bad_alloc, "", AlignedBuffer::uninitialized(size));
  }
}

int main() { return anabranch::testing::run_tests(); }
