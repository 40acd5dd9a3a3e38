// Segments: writing, opening, and what they hold.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "names.h"
#include "store.h"

using namespace nb::literals;
using namespace anabranch::store;

namespace {

using TableTuple = std::tuple<std::string, std::uint32_t, std::string_view, std::string_view,
                              std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t>;

// A writer and what its table takes; used by one thread at a time.
class BoundSegmentWriter {
 public:
  BoundSegmentWriter(const std::string& folder, const std::string& name,
                     std::uint64_t model_version)
      : writer_(folder, name, model_version) {}

  void begin_table(const std::string& name, RowFormat format, KeyKind keys, std::uint64_t most_rows,
                   Duplicates duplicates) {
    const Turn turn(taken_, kWhat);
    run_released(
        [&] { refusing([&] { writer_.begin_table(name, format, keys, most_rows, duplicates); }); });
    format_ = format;
  }

  void add(nb::handle keys, nb::handle values) {
    const Keys key_view(keys);
    const ArrayView rows("values", values);
    rows.expect_type(ElementType::kFloat32);
    expect_shape(key_view, keys, rows, format_.dim);
    const Turn turn(taken_, kWhat);
    run_on(rows.size_bytes(),
           [&] { refusing([&] { writer_.add(key_view.get(), rows.elements<float>()); }); });
  }

  void add_encoded(nb::handle keys, nb::handle encoded) {
    const Keys key_view(keys);
    const ArrayView rows("rows", encoded);
    rows.expect_type(ElementType::kUint8);
    expect_shape(key_view, keys, rows, format_.stride());
    const Turn turn(taken_, kWhat);
    run_on(rows.size_bytes(), [&] {
      refusing([&] { writer_.add_encoded(key_view.get(), rows.elements<std::byte>()); });
    });
  }

  std::uint64_t finish() {
    const Turn turn(taken_, kWhat);
    return run_released([&] { return refusing([&] { return writer_.finish(); }); });
  }

 private:
  static constexpr const char* kWhat = "the segment's writer";

  static void expect_shape(const Keys& keys, nb::handle given, const ArrayView& rows,
                           std::uint32_t columns) {
    rows.expect_contiguous(2);
    rows.expect_extent(1, columns);
    if (!given.is_none()) rows.expect_extent(0, static_cast<std::int64_t>(keys.get().size()));
  }

  SegmentWriter writer_;
  RowFormat format_{RowType::kF32, 1};
  std::atomic<bool> taken_ = false;
};

BoundSegment map_segment(int fd, std::string_view residency) {
  const Residency wanted = named(kResidencies, residency, "residency");
  return {let_go_released(run_released([&] { return Segment::map(fd, wanted); }))};
}

BoundSegment copy_segment(int fd) {
  return {let_go_released(run_released([&] { return Segment::copy(fd); }))};
}

void verify_segment(const BoundSegment& segment, nb::handle progress) {
  std::function<void(std::uint64_t)> report;
  if (!progress.is_none()) {
    report = [&](std::uint64_t bytes) {
      const nb::gil_scoped_acquire acquired;
      progress(bytes);
    };
  }
  run_released([&] { segment.value->verify(report); });
}

std::vector<TableTuple> tables_of(const BoundSegment& segment) {
  std::vector<TableTuple> all;
  for (const SegmentTable& table : segment.value->tables()) {
    all.emplace_back(table.name, table.format.dim, name_of(kRowTypes, table.format.type),
                     name_of(kKeyKinds, table.keys), table.rows, table.groups, table.off_rows,
                     table.off_keys);
  }
  return all;
}

std::pair<double, std::uint32_t> probes_of(const BoundSegment& segment, std::size_t table) {
  if (table >= segment.value->tables().size()) {
    throw Refused("there is no table " + std::to_string(table) + ": the segment has " +
                  std::to_string(segment.value->tables().size()));
  }
  const auto probes = run_released([&] { return segment.value->probes(table); });
  return {probes.mean, probes.most};
}

}  // namespace

void bind_store_segments(nb::module_& m) {
  m.def(
      "row_stride",
      [](std::string_view row_type, std::uint32_t dim) {
        return RowFormat{named(kRowTypes, row_type, "row type"), dim}.stride();
      },
      "row_type"_a, "dim"_a, "Bytes from one encoded row to the next.");

  m.def(
      "index_bytes", [](std::uint64_t keys) { return (groups_for(keys) + 1) * sizeof(Group); },
      "keys"_a, "Bytes of a fresh index for so many keys.");

  nb::class_<BoundSegmentWriter>(m, "SegmentWriter", "Writes one segment file.")
      .def(
          "__init__",
          [](BoundSegmentWriter* self, const nb::bytes& folder, const nb::bytes& name,
             std::uint64_t model_version) {
            refusing([&] {
              new (self) BoundSegmentWriter(std::string(folder.c_str(), folder.size()),
                                            std::string(name.c_str(), name.size()), model_version);
            });
          },
          "folder"_a, "name"_a, "model_version"_a)
      .def(
          "begin_table",
          [](BoundSegmentWriter& writer, const std::string& name, std::uint32_t dim,
             std::string_view row_type, std::string_view keys, std::uint64_t rows,
             std::string_view duplicates) {
            writer.begin_table(name, RowFormat{named(kRowTypes, row_type, "row type"), dim},
                               named(kKeyKinds, keys, "kind of keys"), rows,
                               named(kDuplicates, duplicates, "rule for duplicates"));
          },
          "name"_a, "dim"_a, "row_type"_a, "keys"_a, "rows"_a, "duplicates"_a)
      .def("add", &BoundSegmentWriter::add, "keys"_a.none(), "values"_a,
           nb::sig("def add(self, keys: object, values: object) -> None"),
           "Add float32 rows; keys are None for dense ids.")
      .def("add_encoded", &BoundSegmentWriter::add_encoded, "keys"_a.none(), "rows"_a,
           nb::sig("def add_encoded(self, keys: object, rows: object) -> None"),
           "Add rows as they lie in memory: uint8, a stride each.")
      .def("finish", &BoundSegmentWriter::finish, "Publish the file; its size in bytes.");

  nb::class_<BoundSegment>(m, "Segment", "A segment that is mapped or was copied.")
      .def_static("map", &map_segment, "fd"_a, "residency"_a,
                  "Map what is behind ``fd``, which stays the caller's.")
      .def_static("copy", &copy_segment, "fd"_a, "Copy it into sealed shared memory.")
      .def_prop_ro("model_version", [](const BoundSegment& s) { return s.value->model_version(); })
      .def_prop_ro("format", [](const BoundSegment& s) { return s.value->format(); })
      .def_prop_ro("bytes", [](const BoundSegment& s) { return s.value->bytes(); })
      .def_prop_ro(
          "memory_fd", [](const BoundSegment& s) { return s.value->memory_fd(); },
          "Descriptor of the copy; -1 where it is mapped from a file.")
      .def("tables", &tables_of,
           nb::sig("def tables(self) -> list[tuple[str, int, "
                   "typing.Literal['f32', 'f16', 'bf16', 'int8'], "
                   "typing.Literal['hashed', 'dense_id'], int, int, int, int]]"),
           "Every table as (name, dim, row type, keys, rows, groups, offset of rows, of keys).")
      .def("verify", &verify_segment, "progress"_a.none(),
           nb::sig("def verify(self, progress: collections.abc.Callable[[int], None] | None) -> "
                   "None"),
           "Compare all checksums.")
      .def("huge_page_ratio",
           [](const BoundSegment& s) {
             return run_released([&] { return s.value->huge_page_ratio(); });
           })
      .def("probes", &probes_of, "table"_a, "Mean and most groups per hit of a hashed table.");
}
