#include "store/lookup/refusals.h"

namespace anabranch::store::lookup {
namespace {

std::int64_t length_of(const LookupSpec& spec, const FeatureInput& input, std::int64_t row) {
  return spec.bag_type == IdType::kInt64 ? static_cast<const std::int64_t*>(input.bag)[row]
                                         : static_cast<const std::int32_t*>(input.bag)[row];
}

struct Place {
  std::int64_t row;
  std::int64_t index;  // of the id within its row; 0 in bags, whose ids lie one after another
};

// Where the id at `position` lies. The bags were found to be good; if another thread rewrote them
// since, the row may be another one.
Place place_of(const LookupSpec& spec, const FeatureInput& input, std::int64_t position) {
  if (spec.bag == BagForm::kFixed) return {position / spec.max_length, position % spec.max_length};
  std::int64_t row = 0;
  if (spec.bag == BagForm::kLengths) {
    std::int64_t begin = 0;
    for (; row + 1 < input.bag_count; ++row) {
      const std::int64_t length = length_of(spec, input, row);
      if (length < 0 || length > position - begin) break;  // none is negative, unless rewritten
      begin += length;
    }
    return {row, 0};
  }
  while (row + 1 < input.bag_count && length_of(spec, input, row + 1) <= position) ++row;
  return {row, 0};
}

std::string float_id(const LookupSpec& spec, const FeatureInput& input, Place place,
                     std::int64_t position) {
  const std::int64_t at =
      spec.bag == BagForm::kFixed ? place.row * input.ids_stride + place.index : position;
  return spec.id_type == IdType::kFloat32
             ? std::to_string(static_cast<const float*>(input.ids)[at])
             : std::to_string(static_cast<const double*>(input.ids)[at]);
}

}  // namespace

std::string describe(const Refusal& refusal, const LookupSpec& spec, const FeatureInput& input,
                     const TableView& table) {
  const std::string feature = "feature '" + spec.feature + "'";
  const std::string value = std::to_string(refusal.value);
  const std::string at_row = feature + ", row " + std::to_string(refusal.at) + ": ";
  const char* const bags = spec.bag == BagForm::kLengths ? "lengths" : "offsets";
  switch (refusal.kind) {
    case Refusal::Kind::kNone:
      break;
    case Refusal::Kind::kId: {
      const Place place = place_of(spec, input, refusal.at);
      return feature + ", row " + std::to_string(place.row) + ": id " +
             float_id(spec, input, place, refusal.at) +
             " is no 64-bit integer; send ids from -2^63 up to 2^63 - 1";
    }
    case Refusal::Kind::kMissing: {
      const Place place = place_of(spec, input, refusal.at);
      std::string text = feature + ", row " + std::to_string(place.row) + ": key " + value;
      if (spec.missing == MissingPolicy::kOriginal) {
        const std::string rows = std::to_string(table.base_rows);
        return text + " is not a row of the table, which takes -" + rows + " up to " + rows +
               " - 1";
      }
      return text +
             " is not in the table; send a key that is, or choose another policy for "
             "missing keys";
    }
    case Refusal::Kind::kBagCount:
      return feature + ": " + value + " " + bags + " do not fit the rows; send one for each row" +
             (spec.bag == BagForm::kOffsets ? ", or one more" : "");
    case Refusal::Kind::kNegative:
      return at_row + (spec.bag == BagForm::kLengths ? "length " : "offset ") + value +
             " is negative";
    case Refusal::Kind::kFirst:
      return at_row + "the first offset is " + value + "; it must be 0";
    case Refusal::Kind::kFalling:
      return at_row + "offset " + value + " is less than the one before it";
    case Refusal::Kind::kBeyond:
      return at_row + bags + " reach to id " + value + ", but there are " +
             std::to_string(input.id_count) + " ids";
    case Refusal::Kind::kTooLong:
      return at_row + value + " ids are too many; at most " + std::to_string(spec.max_length) +
             " are taken";
  }
  return feature;
}

}  // namespace anabranch::store::lookup
