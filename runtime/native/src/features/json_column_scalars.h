// One value of a feature in JSON text, and runs of them.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "json_column_cursor.h"
#include "json_column_values.h"

namespace anabranch::features {

// What kind of value stands at the cursor, in words for a message: `"12"`, `1.5`, `an array`.
std::string found_at(JsonCursor cursor);

// Reads one value into `values`. Returns nothing, or what would have been expected; then the cursor
// is where it was. `texts` keeps strings that had escapes.
const char* take_value(JsonCursor& cursor, GrowingValues<std::int64_t>& values,
                       std::deque<std::string>& texts);
const char* take_value(JsonCursor& cursor, GrowingValues<float>& values,
                       std::deque<std::string>& texts);
const char* take_value(JsonCursor& cursor, GrowingValues<std::string_view>& values,
                       std::deque<std::string>& texts);

// Reads common values as long as they follow each other with a comma and at most one space. True:
// the cursor is behind a value; false: in front of something else.
bool take_run(JsonCursor& cursor, GrowingValues<std::int64_t>& values,
              std::deque<std::string>& texts);
bool take_run(JsonCursor& cursor, GrowingValues<float>& values, std::deque<std::string>& texts);
bool take_run(JsonCursor& cursor, GrowingValues<std::string_view>& values,
              std::deque<std::string>& texts);

}  // namespace anabranch::features
