#include "json_datatypes.h"

#include <array>

namespace anabranch {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 11> kNames = {"BOOL",   "INT8",  "INT16",  "INT32",
                                                     "INT64",  "UINT8", "UINT16", "UINT32",
                                                     "UINT64", "FP32",  "FP64"};

}  // namespace

std::optional<Datatype> datatype_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Datatype>(i);
  }
  return std::nullopt;
}

std::string_view name_of(Datatype datatype) noexcept {
  return kNames[static_cast<std::size_t>(datatype)];
}

std::size_t size_of(Datatype datatype) noexcept {
  return json_detail::visit_datatype(datatype, [](auto value) { return sizeof value; });
}

}  // namespace anabranch
