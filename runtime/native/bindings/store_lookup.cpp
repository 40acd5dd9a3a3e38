// Lookup plans and the arrays they run over.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

#include "anabranch/store/lookup.h"
#include "lookup_arguments.h"
#include "names.h"
#include "store.h"

using namespace nb::literals;
using namespace anabranch::store;

namespace {

using Counters = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>, nb::c_contig>;

// Attribute `name` of a frozen dataclass of Python's. Throws Refused where it does not fit T.
template <class T>
T field(nb::handle object, const char* name) {
  T value{};
  if (!nb::try_cast(object.attr(name), value)) {
    throw Refused(std::string(name) + ": a value that this field cannot hold");
  }
  return value;
}

template <class Value, std::size_t N>
Value field(nb::handle object, const char* name, const Name<Value> (&names)[N]) {
  return named(names, field<std::string>(object, name), name);
}

// A key as Python has it, negative or not, as its 64 bits.
std::uint64_t key_bits(nb::handle number) {
  const auto bits = PyLong_AsUnsignedLongLongMask(number.ptr());
  if (PyErr_Occurred()) throw nb::python_error();
  return bits;
}

LookupSpec to_spec(nb::handle lookup) {
  LookupSpec spec;
  spec.feature = field<std::string>(lookup, "feature");
  spec.table = field<std::size_t>(lookup, "table");
  spec.side = field(lookup, "side", kSides);
  spec.id_type = field(lookup, "id_type", kIdTypes);
  spec.add = field<std::int64_t>(lookup, "add");
  spec.combiner = field(lookup, "combiner", kCombiners);
  spec.bag = field(lookup, "bag", kBagForms);
  spec.bag_type = field(lookup, "bag_type", kIdTypes);
  spec.max_length = field<std::uint32_t>(lookup, "max_length");
  spec.weighted = field<bool>(lookup, "weighted");
  if (const nb::object key = lookup.attr("padding_key"); !key.is_none()) {
    spec.padding_key = key_bits(key);
  }
  spec.missing = field(lookup, "missing", kMissingPolicies);
  spec.missing_row = field<std::vector<float>>(lookup, "missing_row");
  spec.missing_key = key_bits(nb::object(lookup.attr("missing_key")));
  spec.buffer = field<std::size_t>(lookup, "buffer");
  spec.column = field<std::size_t>(lookup, "column");
  return spec;
}

BufferSpec to_buffer(nb::handle buffer) {
  return {field(buffer, "type", kOutputTypes), field(buffer, "side", kSides),
          field<std::size_t>(buffer, "columns")};
}

BoundPlan make_plan(const BoundGeneration& generation, nb::handle lookups, nb::handle buffers,
                    std::string_view isa) {
  std::vector<LookupSpec> specs;
  std::vector<BufferSpec> outputs;
  std::vector<std::uint32_t> dims;
  for (const nb::handle lookup : lookups) specs.push_back(to_spec(lookup));
  for (const nb::handle buffer : buffers) outputs.push_back(to_buffer(buffer));
  for (const LookupSpec& spec : specs) {
    dims.push_back(table_of(*generation.value, spec.table).format.dim);
  }
  return refusing([&] {
    return BoundPlan{LookupPlan(generation.value, std::move(specs), std::move(outputs), isa),
                     std::move(dims)};
  });
}

Counters view_of(nb::handle owner, std::vector<std::uint64_t>& counts) {
  return Counters(counts.data(), {counts.size()}, owner);
}

}  // namespace

void bind_store_lookup(nb::module_& m) {
  m.def(
      "instruction_sets",
      [] {
        std::vector<std::string_view> all;
        for (const std::string_view name : LookupPlan::instruction_sets()) all.push_back(name);
        return all;
      },
      "What lookups can run on here, the best first.");

  nb::class_<BoundArguments>(m, "LookupArguments", "Arrays bound to a plan; see `LookupPlan`.")
      .def("bind", &BoundArguments::bind, "index"_a, "ids"_a, "bag"_a.none() = nb::none(),
           "weights"_a.none() = nb::none(),
           nb::sig("def bind(self, index: int, ids: numpy.typing.NDArray[typing.Any], "
                   "bag: numpy.typing.NDArray[typing.Any] | None = None, "
                   "weights: numpy.typing.NDArray[numpy.float32] | None = None) -> None"),
           "Put other arrays in the place of one feature's.")
      .def_prop_ro(
          "keys",
          [](nb::handle self) { return view_of(self, nb::cast<BoundArguments&>(self).keys()); },
          nb::for_getter(nb::sig("def keys(self) -> numpy.typing.NDArray[numpy.uint64]")),
          "Keys looked up, one count per lookup; `run` adds to it.")
      .def_prop_ro(
          "misses",
          [](nb::handle self) { return view_of(self, nb::cast<BoundArguments&>(self).misses()); },
          nb::for_getter(nb::sig("def misses(self) -> numpy.typing.NDArray[numpy.uint64]")),
          "Keys that were absent, one count per lookup; `run` adds to it.");

  nb::class_<BoundPlan>(m, "LookupPlan", "All lookups of a model, compiled.")
      .def(
          "__init__",
          [](BoundPlan* self, const BoundGeneration& generation, nb::handle lookups,
             nb::handle buffers, std::string_view isa) {
            new (self) BoundPlan(make_plan(generation, lookups, buffers, isa));
          },
          "generation"_a, "lookups"_a, "buffers"_a, "isa"_a,
          nb::sig("def __init__(self, generation: Generation, lookups: "
                  "collections.abc.Sequence[object], buffers: collections.abc.Sequence[object], "
                  "isa: str) -> None"))
      .def_prop_ro(
          "isa", [](const BoundPlan& bound) { return bound.plan.isa(); },
          "The instruction set it runs on.")
      .def(
          "bound",
          [](const BoundPlan& bound, nb::handle features, nb::handle outputs) {
            return new BoundArguments(bound, features, outputs);
          },
          "features"_a, "outputs"_a, nb::keep_alive<0, 1>(),
          nb::sig("def bound(self, features: collections.abc.Sequence[object], outputs: "
                  "collections.abc.Sequence[object]) -> LookupArguments"),
          "Arrays for `run`, checked and held.")
      .def(
          "run",
          [](const BoundPlan& bound, BoundArguments& arguments, std::uint32_t version,
             std::int64_t rows, std::int64_t users,
             nb::handle user_index) { arguments.run(bound, version, rows, users, user_index); },
          "arguments"_a, "version"_a, "rows"_a, nb::kw_only(), "users"_a = 0,
          "user_index"_a.none() = nb::none(),
          nb::sig("def run(self, arguments: LookupArguments, version: int, rows: int, *, "
                  "users: int = 0, user_index: numpy.typing.NDArray[numpy.int64] | None = None) "
                  "-> None"),
          "One batch; see `anabranch_runtime.store.LookupPlan`.");
}
