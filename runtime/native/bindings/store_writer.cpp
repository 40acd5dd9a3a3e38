// The writer of a store, its changes and its growth; and what readers map.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "anabranch/store/writer.h"
#include "arrays.h"
#include "store.h"

using namespace nb::literals;
using namespace anabranch::store;

namespace {

using Counts =
    std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
using Stats = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                         std::uint64_t, double, double>;
using Bytes = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
using Room = std::pair<std::uint32_t, std::uint32_t>;

std::vector<Capacity> to_capacities(const std::vector<Room>& rooms) {
  std::vector<Capacity> capacities;
  for (const auto& [arena_rows, keys] : rooms) capacities.push_back({arena_rows, keys});
  return capacities;
}

// A writer, kept by whatever works through it; for one thread at a time, of the process that made
// it.
class Store {
 public:
  explicit Store(std::unique_ptr<StoreWriter> made) : writer(std::move(made)) {}

  // Calls `work` as the only thread, without the GIL.
  template <class Work>
  auto alone(Work&& work) {
    if (!is_ours()) throw std::logic_error("the store's writer is another process's");
    const Turn turn(taken_, "the store's writer");
    return run_released([&] {
      end_left();
      return refusing(work);
    });
  }

  // Ends what Python let go of: garbage is collected on any thread, so where another one works, the
  // next turn ends it. Of each there is at most one, since it is open until then.
  void leave(std::optional<Change>&& change, std::unique_ptr<StoreWriter::Growth>&& growth) {
    if (!is_ours()) return;  // the lock may have been held when this process was forked
    {
      const std::lock_guard lock(left_lock_);
      if (change) left_change_.emplace(*std::move(change));
      if (growth) left_growth_ = std::move(growth);
    }
    if (taken_.exchange(true, std::memory_order_acquire)) return;
    end_left();
    taken_.store(false, std::memory_order_release);
  }

  const std::unique_ptr<StoreWriter> writer;

 private:
  bool is_ours() const noexcept { return ::getpid() == process_; }
  void end_left() {
    const std::lock_guard lock(left_lock_);
    left_change_.reset();
    left_growth_.reset();
  }

  const pid_t process_ = ::getpid();
  std::atomic<bool> taken_ = false;
  std::mutex left_lock_;
  std::optional<Change> left_change_;
  std::unique_ptr<StoreWriter::Growth> left_growth_;
};

class BoundChange {
 public:
  BoundChange(std::shared_ptr<Store> store, Change change)
      : store_(std::move(store)), change_(std::move(change)) {}
  ~BoundChange() {
    if (change_) store_->leave(std::move(change_), nullptr);
  }
  BoundChange(const BoundChange&) = delete;
  BoundChange& operator=(const BoundChange&) = delete;

  void upsert(std::size_t table, nb::handle keys, nb::handle values) {
    const Keys key_view(keys);
    const ArrayView rows("values", values);
    rows.expect_type(ElementType::kFloat32);
    expect_shape(key_view, rows, table_of(*generation(), table).format.dim);
    fill([&](Change& change) { change.upsert(table, key_view.get(), rows.elements<float>()); });
  }

  void upsert_encoded(std::size_t table, nb::handle keys, nb::handle encoded) {
    const Keys key_view(keys);
    const ArrayView rows("rows", encoded);
    rows.expect_type(ElementType::kUint8);
    expect_shape(key_view, rows, table_of(*generation(), table).format.stride());
    fill([&](Change& change) {
      change.upsert_encoded(table, key_view.get(), rows.elements<std::byte>());
    });
  }

  void erase(std::size_t table, nb::handle keys) {
    const Keys key_view(keys);
    table_of(*generation(), table);
    fill([&](Change& change) { change.erase(table, key_view.get()); });
  }

  Counts counts() {
    const ChangeCounts counts = store_->alone([&] { return open().counts(); });
    return {counts.inserted, counts.updated, counts.deleted, counts.absent, counts.duplicates};
  }

  std::uint32_t version() {
    return store_->alone([&] { return open().version(); });
  }

  void apply() {
    store_->alone([&] {
      open().apply();
      change_.reset();
    });
  }

  void close() {
    store_->alone([&] { change_.reset(); });
  }

 private:
  static void expect_shape(const Keys& keys, const ArrayView& rows, std::uint32_t columns) {
    rows.expect_contiguous(2);
    rows.expect_extent(0, static_cast<std::int64_t>(keys.get().size()));
    rows.expect_extent(1, columns);
  }

  std::shared_ptr<const Generation> generation() const { return store_->writer->generation(); }

  // Lets `work` add to the change, which is dropped where that fails half way.
  template <class Work>
  void fill(Work&& work) {
    store_->alone([&] {
      Change& change = open();
      try {
        work(change);
      } catch (...) {
        change_.reset();
        throw;
      }
    });
  }

  Change& open() {
    if (!change_) throw std::logic_error("the change is closed: begin another one");
    return *change_;
  }

  std::shared_ptr<Store> store_;  // outlives the change
  std::optional<Change> change_;
};

class BoundWriter {
 public:
  explicit BoundWriter(std::unique_ptr<StoreWriter> writer)
      : store_(let_go_released(std::make_shared<Store>(std::move(writer)))) {}

  StoreWriter& get() const noexcept { return *store_->writer; }
  const std::shared_ptr<Store>& store() const noexcept { return store_; }

  BoundChange* begin() const {
    return new BoundChange(store_, store_->alone([&] { return get().begin(); }));
  }
  BoundChange* restore(std::uint32_t version) const {
    return new BoundChange(store_, store_->alone([&] { return get().restore(version); }));
  }
  std::uint64_t reclaim(std::uint32_t floor) const {
    return store_->alone([&] { return get().reclaim(floor); });
  }
  Stats stats(std::size_t table) const {
    table_of(*get().generation(), table);
    const TableStats s = store_->alone([&] { return get().stats(table); });
    return {s.live_keys, s.arena_rows, s.arena_used, s.retired_rows,
            s.slots,     s.used_slots, s.load,       s.mean_probe};
  }
  Bytes memory() const {
    const auto bytes = store_->alone([&] { return get().bytes(); });
    return {bytes.index, bytes.arena, bytes.undo, bytes.books};
  }
  double huge_page_ratio() const {
    return store_->alone([&] { return get().huge_page_ratio(); });
  }

 private:
  std::shared_ptr<Store> store_;
};

BoundWriter* create_writer(const BoundSegment& segment, const std::vector<Room>& rooms,
                           std::uint32_t version) {
  const std::vector<Capacity> capacities = to_capacities(rooms);
  return new BoundWriter(run_released([&] {
    return refusing([&] { return StoreWriter::create(segment.value, capacities, version); });
  }));
}

class BoundGrowth {
 public:
  BoundGrowth(std::shared_ptr<Store> store, std::unique_ptr<StoreWriter::Growth> growth)
      : store_(std::move(store)), growth_(std::move(growth)) {}
  ~BoundGrowth() {
    if (growth_) store_->leave(std::nullopt, std::move(growth_));
  }
  BoundGrowth(const BoundGrowth&) = delete;
  BoundGrowth& operator=(const BoundGrowth&) = delete;

  bool step(std::uint64_t rows) {
    return store_->alone([&] { return open().step(rows); });
  }
  BoundWriter* finish() {
    return new BoundWriter(store_->alone([&] {
      auto writer = open().finish();
      growth_.reset();
      return writer;
    }));
  }
  void close() {
    store_->alone([&] { growth_.reset(); });
  }

 private:
  StoreWriter::Growth& open() {
    if (!growth_) throw std::logic_error("the growth is closed: begin another one");
    return *growth_;
  }

  std::shared_ptr<Store> store_;  // outlives the growth
  std::unique_ptr<StoreWriter::Growth> growth_;
};

BoundGrowth* begin_growth(const BoundWriter& writer, const std::vector<Room>& rooms) {
  const std::vector<Capacity> capacities = to_capacities(rooms);
  return new BoundGrowth(writer.store(),
                         writer.store()->alone([&] { return writer.get().grow(capacities); }));
}

BoundGeneration map_generation(int fd, const BoundSegment& segment, bool populate) {
  return {
      let_go_released(run_released([&] { return Generation::map(fd, segment.value, populate); }))};
}

using Values = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;
using Found = nb::ndarray<nb::numpy, bool, nb::ndim<1>, nb::c_contig>;

// An array that owns its memory, of zeros.
template <class Array, class T>
Array zeros(std::initializer_list<std::size_t> shape) {
  std::size_t elements = 1;
  for (const std::size_t extent : shape) elements *= extent;
  T* data = new T[std::max<std::size_t>(elements, 1)]{};
  return Array(data, shape,
               nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}

std::pair<Values, Found> rows_of(const BoundGeneration& generation, std::size_t table,
                                 nb::handle keys, std::uint32_t version) {
  const Keys key_view(keys);
  const TableView& view = table_of(*generation.value, table);
  const std::size_t dim = view.format.dim;
  const std::size_t count = key_view.get().size();
  auto values = zeros<Values, float>({count, dim});
  auto found = zeros<Found, bool>({count});
  run_on(count * dim * sizeof(float), [&] {
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* row = find_row(view, key_view.get()[i], version);
      if (row == nullptr) continue;
      decode_row(view.format, row, values.data() + i * dim);
      found.data()[i] = true;
    }
  });
  return {std::move(values), std::move(found)};
}

}  // namespace

void bind_store_writer(nb::module_& m) {
  nb::class_<BoundGeneration>(m, "Generation", "The mutable half of a store, mapped for reading.")
      .def_static("map", &map_generation, "fd"_a, "segment"_a, "populate"_a,
                  "Map what is behind ``fd``, which stays the caller's.")
      .def_prop_ro("bytes", [](const BoundGeneration& g) { return g.value->bytes(); })
      .def("rows", &rows_of, "table"_a, "keys"_a, "version"_a,
           nb::sig("def rows(self, table: int, keys: object, version: int) -> "
                   "tuple[numpy.typing.NDArray[numpy.float32], "
                   "numpy.typing.NDArray[numpy.bool_]]"),
           "Rows at a version, and which of the keys have one.");

  nb::class_<BoundChange>(m, "Change", "A change that is prepared.")
      .def("upsert", &BoundChange::upsert, "table"_a, "keys"_a, "values"_a,
           nb::sig("def upsert(self, table: int, keys: object, values: object) -> None"),
           "Rows of float32.")
      .def("upsert_encoded", &BoundChange::upsert_encoded, "table"_a, "keys"_a, "rows"_a,
           nb::sig("def upsert_encoded(self, table: int, keys: object, rows: object) -> None"),
           "Rows as they lie in memory: uint8, a stride each.")
      .def("erase", &BoundChange::erase, "table"_a, "keys"_a,
           nb::sig("def erase(self, table: int, keys: object) -> None"))
      .def("counts", &BoundChange::counts, "Inserted, updated, deleted, absent, duplicates.")
      .def_prop_ro("version", &BoundChange::version)
      .def("apply", &BoundChange::apply)
      .def("close", &BoundChange::close, "Give back what it took.");

  nb::class_<BoundWriter>(m, "StoreWriter", "The only writer of a generation.")
      .def_static("create", &create_writer, "segment"_a, "capacities"_a, "version"_a,
                  "Capacities are pairs of arena rows and keys, one per table.")
      .def_prop_ro("fd", [](const BoundWriter& w) { return w.get().fd(); })
      .def_prop_ro("version", [](const BoundWriter& w) { return w.get().version(); })
      .def("generation",
           [](const BoundWriter& w) {
             return BoundGeneration{let_go_released(w.get().generation())};
           })
      .def("begin", &BoundWriter::begin)
      .def("restore", &BoundWriter::restore, "version"_a)
      .def("reclaim", &BoundWriter::reclaim, "floor"_a)
      .def("stats", &BoundWriter::stats, "table"_a,
           "Live keys, arena rows, used, retired; slots, used; load, mean probe.")
      .def("memory", &BoundWriter::memory, "Bytes of index, arena, undo links, books.")
      .def("huge_page_ratio", &BoundWriter::huge_page_ratio)
      .def("grow", &begin_growth, "capacities"_a);

  nb::class_<BoundGrowth>(m, "Growth", "A new generation in the making.")
      .def("step", &BoundGrowth::step, "rows"_a)
      .def("finish", &BoundGrowth::finish)
      .def("close", &BoundGrowth::close);
}
