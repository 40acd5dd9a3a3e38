#include "anabranch/features/raw_column.h"

namespace anabranch::features {

void ColumnStorage::clear() {
  ints.clear();
  floats.clear();
  strings.clear();
  texts.clear();
  lengths.clear();
  weights.clear();
  missing.clear();
}

RawColumn ColumnStorage::view(const ColumnForm& form, std::size_t rows) const {
  RawColumn column;
  column.type = form.type;
  column.rows = rows;
  switch (form.type) {
    case ValueType::kInt64:
      column.ints = ints;
      break;
    case ValueType::kFloat32:
      column.floats = floats;
      break;
    case ValueType::kString:
      column.strings = strings;
      break;
  }
  if (form.ragged) column.lengths = lengths;
  column.weights = weights;
  column.missing = missing;
  return column;
}

}  // namespace anabranch::features
