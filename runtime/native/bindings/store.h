// What the binding files of the embedding store share.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "anabranch/store/errors.h"
#include "anabranch/store/generation.h"
#include "anabranch/store/segment.h"
#include "conversions.h"

// Python holds segments and generations through these, since they are shared and const.
struct BoundSegment {
  std::shared_ptr<const anabranch::store::Segment> value;
};
struct BoundGeneration {
  std::shared_ptr<const anabranch::store::Generation> value;
};

// The only thread that works on something; a second one is told, instead of breaking it.
class Turn {
 public:
  Turn(std::atomic<bool>& taken, const char* what) : taken_(taken) {
    if (taken_.exchange(true, std::memory_order_acquire)) {
      throw std::logic_error(std::string(what) + " is in use by another thread");
    }
  }
  ~Turn() { taken_.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& taken_;
};

// Calls `work`; what it says of its arguments becomes InvalidInput.
template <class Work>
auto refusing(Work&& work) {
  try {
    return work();
  } catch (const anabranch::store::Refused&) {
    throw;
  } catch (const std::invalid_argument& error) {
    throw anabranch::store::Refused(error.what());
  }
}

// The view of table `index`. Throws Refused where there is none.
inline const anabranch::store::TableView& table_of(const anabranch::store::Generation& generation,
                                                   std::size_t index) {
  const auto tables = generation.tables();
  if (index < tables.size()) return tables[index];
  throw anabranch::store::Refused("there is no table " + std::to_string(index) +
                                  ": the store has " + std::to_string(tables.size()));
}

void bind_store_segments(nb::module_& m);
void bind_store_writer(nb::module_& m);
void bind_store_lookup(nb::module_& m);
