#include "anabranch/features/feature.h"

#include "anabranch/features/program.h"

namespace anabranch::features {

std::size_t Feature::keys_each() const {
  if (const auto* hashes = std::get_if<Hashes>(&transform)) return hashes->functions.size();
  return std::holds_alternative<QuotientRemainder>(transform) ? 2 : 1;
}

FeatureCounts& FeatureCounts::operator+=(const FeatureCounts& other) noexcept {
  values += other.values;
  defaulted += other.defaulted;
  out_of_vocabulary += other.out_of_vocabulary;
  truncated += other.truncated;
  out_of_range += other.out_of_range;
  return *this;
}

}  // namespace anabranch::features
