#include "store/segments/table_name.h"

#include <cstddef>
#include <cstdint>

#include "store/segments/segment_layout.h"

namespace anabranch::store {
namespace {

// Bytes of the well-formed character at the beginning of `text`, 0 where there is none: The Unicode
// Standard, table 3-7.
std::size_t character_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t bytes = lead < 0xC2   ? 0
                            : lead < 0xE0 ? 2
                            : lead < 0xF0 ? 3
                            : lead < 0xF5 ? 4
                                          : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return bytes;
}

}  // namespace

bool is_table_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > segment_layout::kMaxNameBytes) return false;
  while (!name.empty()) {
    const std::size_t bytes = character_bytes(name);
    if (bytes == 0) return false;
    name.remove_prefix(bytes);
  }
  return true;
}

}  // namespace anabranch::store
