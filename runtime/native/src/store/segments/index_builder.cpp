#include "store/segments/index_builder.h"

#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "anabranch/store/errors.h"

namespace anabranch::store {
namespace {

// Keys whose home lines are on their way at the same time.
constexpr std::size_t kBlock = 32;

}  // namespace

Groups::Groups(std::uint64_t count) {
  const std::size_t bytes = count * sizeof(Group);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
  groups_ = {static_cast<Group*>(memory), count};
}

Groups::~Groups() {
  if (!groups_.empty()) ::munmap(groups_.data(), groups_.size_bytes());
}

std::uint64_t IndexBuilder::random_seed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    throw std::system_error(errno, std::generic_category(), "cannot get random bytes");
  }
  return seed;
}

IndexBuilder::IndexBuilder(std::uint64_t most_keys, std::function<std::uint64_t()> next_seed)
    : next_seed_(std::move(next_seed)), seed_(next_seed_()), groups_(groups_for(most_keys) + 1) {
  keys_.reserve(most_keys);
}

void IndexBuilder::prefetch(std::span<const std::uint64_t> keys,
                            std::span<std::uint64_t> homes) noexcept {
  const Group* groups = groups_.span().data();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    homes[i] = home_group(keys[i], seed_, group_count());
    __builtin_prefetch(groups + homes[i], 1);
  }
}

// The row of the key, which is `row` where it is new; kNoRoom where it would lie too far away.
std::uint32_t IndexBuilder::place(std::uint64_t key, std::uint64_t home,
                                  std::uint32_t row) noexcept {
  Group* groups = groups_.span().data();
  const std::uint64_t count = group_count();
  const std::uint64_t rv = make_rv(row, kFirstVersion);
  if (is_side_key(key)) {
    Slot& slot = groups[count].slots[side_slot(key)];
    if (slot.rv != 0) return row_of(slot.rv);
    slot = {key, rv};
    return row;
  }
  const std::uint64_t reach = std::min<std::uint64_t>(count, kMaxProbeGroups);
  std::uint64_t at = home;
  for (std::uint64_t probe = 0; probe < reach; ++probe) {
    Group& group = groups[at];
    for (Slot& slot : group.slots) {
      if (slot.key == key) return row_of(slot.rv);
      if (slot.key == kEmptyKey) {
        slot = {key, rv};
        return row;
      }
    }
    group.slots[0].rv |= kOverflow;
    at = at + 1 == count ? 0 : at + 1;
  }
  return kNoRoom;
}

void IndexBuilder::add(std::span<const std::uint64_t> keys, std::span<std::uint32_t> rows) {
  std::uint64_t homes[kBlock];
  for (std::size_t begin = 0; begin < keys.size(); begin += kBlock) {
    const auto block = keys.subspan(begin, std::min(kBlock, keys.size() - begin));
    prefetch(block, homes);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const auto next = static_cast<std::uint32_t>(keys_.size());
      std::uint32_t row = place(block[i], homes[i], next);
      if (row == next || row == kNoRoom) keys_.push_back(block[i]);
      if (row == kNoRoom) {
        rebuild(group_count());
        prefetch(block, homes);
        row = next;
      }
      rows[begin + i] = row;
    }
  }
}

bool IndexBuilder::place_all() noexcept {
  std::uint64_t homes[kBlock];
  for (std::size_t begin = 0; begin < keys_.size(); begin += kBlock) {
    const auto block = keys().subspan(begin, std::min(kBlock, keys_.size() - begin));
    prefetch(block, homes);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const auto row = static_cast<std::uint32_t>(begin + i);
      if (place(block[i], homes[i], row) == kNoRoom) return false;
    }
  }
  return true;
}

void IndexBuilder::rebuild(std::uint64_t group_count) {
  for (int seeds = 0; seeds < kMostSeeds; ++seeds) {
    groups_ = Groups();  // not both at a time
    groups_ = Groups(group_count + 1);
    seed_ = next_seed_();
    if (place_all()) return;
  }
  throw StoreFull("under each of " + std::to_string(kMostSeeds) + " seeds a key lies more than " +
                  std::to_string(kMaxProbeGroups) + " groups from its home: these " +
                  std::to_string(keys_.size()) + " keys cannot be indexed");
}

void IndexBuilder::finish() {
  if (groups_for(keys_.size()) != group_count()) rebuild(groups_for(keys_.size()));
}

}  // namespace anabranch::store
