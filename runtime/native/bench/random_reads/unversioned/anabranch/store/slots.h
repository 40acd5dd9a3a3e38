// The index slots of a store without versions: found before the real header, which it includes.
//
// Every row is of the first version, old enough for every reader; so the compiler drops the reading
// and comparing of versions and the walk along undo links, and all else stays. For the yardstick of
// multi-version reads only, over generations in which nothing was changed.
#pragma once

#define version_of stored_version_of
#include_next "anabranch/store/slots.h"
#undef version_of

namespace anabranch::store {

constexpr std::uint32_t version_of(std::uint64_t) noexcept { return kFirstVersion; }

}  // namespace anabranch::store
