// The only writer of a generation: changes rows so that readers at older store versions notice
// nothing.
//
// A change has two halves. `Change` collects upserts and deletes, finds every slot, takes every row
// and link it will need and writes the new rows where nobody looks yet; all that can fail fails
// here, and dropping the Change gives everything back. `apply` then stores one word per key, and
// cannot fail. Readers see it once they are told the new version number, which is the caller's to
// publish. What a version superseded is reclaimed by `reclaim(floor)` when no reader is below.
//
// Protocol, with the order of every store: docs/formats.md, "Generations".
//
// Thread-safety: one thread at a time, except where stated. Readers need no lock.
// Ownership: a Change and a Growth keep the memory that they work on, also without their writer.
// Invariants: a row is in exactly one of: reachable from a slot, retired, reserved by the Change,
// free. Nothing fails between the first store of `apply` and its last. A slot is given to another
// key only when the floor has passed the version after its death.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "anabranch/store/generation.h"

namespace anabranch::store {

class StoreWriter;

// What a change would do, counted.
struct ChangeCounts {
  std::uint64_t inserted = 0;
  std::uint64_t updated = 0;
  std::uint64_t deleted = 0;
  std::uint64_t absent = 0;      // deletes of keys that are not there; nothing else comes of them
  std::uint64_t duplicates = 0;  // earlier upserts and deletes of a key that a later one replaced
};

// A prepared, unpublished change. At most one per writer at a time.
class Change {
 public:
  ~Change();  // gives back what it reserved, unless it was applied
  Change(Change&&) noexcept;
  Change& operator=(Change&&) = delete;

  // Adds rows to table `table`: `values` row-major [n, dim] f32. Last wins: inside a call, and over
  // earlier calls, deletes included. Throws StoreFull (arena, index or probe limit; the numbers),
  // Refused (a dense id that is out of range, int8 cannot hold a row); afterwards the Change can
  // only be dropped.
  void upsert(std::size_t table, std::span<const std::uint64_t> keys,
              std::span<const float> values);
  // As `upsert`, for rows that are encoded in the table's format, `stride()` apart.
  void upsert_encoded(std::size_t table, std::span<const std::uint64_t> keys,
                      std::span<const std::byte> rows);
  // Throws Refused for a dense-id table, and StoreFull.
  void erase(std::size_t table, std::span<const std::uint64_t> keys);

  ChangeCounts counts() const noexcept;
  // The store version that `apply` will make.
  std::uint32_t version() const noexcept;

  // Makes the change under version(). Does not fail and does not wait. Once, and not after a call
  // that threw: that ends the process.
  void apply() noexcept;

 private:
  friend class CoreWriter;
  struct State;
  explicit Change(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct TableStats {
  std::uint64_t live_keys;
  std::uint64_t arena_rows;    // capacity
  std::uint64_t arena_used;    // reachable, retired or reserved
  std::uint64_t retired_rows;  // superseded, waiting for the floor
  std::uint64_t slots;
  std::uint64_t used_slots;  // live, dead or tombstoned
  double load;               // live_keys / slots; for dense ids 1
  double mean_probe;         // groups per hit, sampled; for dense ids 1
};

class StoreWriter {
 public:
  // A new generation over `segment`, one capacity per table. The memory is sealed (nobody else can
  // map it for writing), its index is filled and collapsed into huge pages where possible.
  // `version` is what readers are to pass first (at least kFirstVersion). Throws
  // std::invalid_argument for a capacity that cannot be, Damaged where the segment's index
  // contradicts itself, StoreFull where keys crowd, std::system_error, std::bad_alloc.
  static std::unique_ptr<StoreWriter> create(std::shared_ptr<const Segment> segment,
                                             std::span<const Capacity> capacities,
                                             std::uint32_t version = kFirstVersion);
  virtual ~StoreWriter() = default;
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  // Descriptor for readers; owned by the writer. Any thread.
  virtual int fd() const noexcept = 0;
  // What readers map, as this process sees it.
  virtual std::shared_ptr<const Generation> generation() const noexcept = 0;
  // Of the last applied change. Any thread.
  virtual std::uint32_t version() const noexcept = 0;

  // Begins a change. Throws std::logic_error where one is open, StoreFull at the last version.
  virtual Change begin() = 0;

  // A change that gives every key the row it had at `version`, which must be retained: no `reclaim`
  // with a floor above it was called since. Throws Refused where it is not, StoreFull.
  virtual Change restore(std::uint32_t version) = 0;

  // Frees what no reader at `floor` or above can see; floor at most version(). Not while a change
  // is open. Returns rows freed.
  virtual std::uint64_t reclaim(std::uint32_t floor) = 0;

  virtual TableStats stats(std::size_t table) const = 0;
  // Bytes of memory in use: index, touched arena, touched undo links; and the writer's own books.
  struct Bytes {
    std::uint64_t index;
    std::uint64_t arena;
    std::uint64_t undo;
    std::uint64_t books;
  };
  virtual Bytes bytes() const = 0;
  virtual double huge_page_ratio() const = 0;

  // A new generation with the rows that are visible now, and room for `capacities`; made in steps
  // between which this writer may apply changes, which are caught up with.
  class Growth {
   public:
    virtual ~Growth() = default;
    // Copies about `rows` more rows; whether all are copied. Once they are, further steps catch up
    // with what changed meanwhile, which leaves less for `finish`. Throws StoreFull; afterwards the
    // growth can only be dropped.
    virtual bool step(std::uint64_t rows) = 0;
    // Catches up with what changed since, and returns the new writer, at the same version. No
    // change is open, and the old writer applies no further one. Throws StoreFull.
    virtual std::unique_ptr<StoreWriter> finish() = 0;
  };
  // Throws as `create` does. One at a time; dropping it gives up.
  virtual std::unique_ptr<Growth> grow(std::span<const Capacity> capacities) = 0;

 protected:
  StoreWriter() = default;
};

}  // namespace anabranch::store
