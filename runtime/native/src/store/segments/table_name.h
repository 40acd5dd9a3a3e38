// What a table may be called: UTF-8 of 1 to 512 bytes.
//
// Thread-safety: pure.
#pragma once

#include <string_view>

namespace anabranch::store {

bool is_table_name(std::string_view name) noexcept;

}  // namespace anabranch::store
