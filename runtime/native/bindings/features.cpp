// Hashes, and programs of features with the columns they run over.
#include "features.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <deque>
#include <forward_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "anabranch/features/hashing.h"
#include "anabranch/features/program.h"
#include "feature_plans.h"

using namespace nb::literals;
using namespace anabranch::features;

namespace {

using Array = nb::ndarray<nb::numpy>;

// An array that owns `memory`, and has its numbers at `data`.
template <class Memory>
nb::object to_array(Memory memory, void* data, nb::dlpack::dtype type,
                    std::initializer_list<std::size_t> shape) {
  auto* owned = new Memory(std::move(memory));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<Memory*>(p); });
  return nb::cast(Array(data, shape, owner, {}, type));
}

nb::object to_array(anabranch::AlignedBuffer buffer, nb::dlpack::dtype type,
                    std::initializer_list<std::size_t> shape) {
  void* data = buffer.data();
  return to_array(std::move(buffer), data, type, shape);
}

template <class T>
nb::object to_array(std::vector<T> values, std::initializer_list<std::size_t> shape) {
  void* data = values.data();
  return to_array(std::move(values), data, nb::dtype<T>(), shape);
}

nb::dlpack::dtype dtype_of(NumberType type) {
  switch (type) {
    case NumberType::kInt32:
      return nb::dtype<std::int32_t>();
    case NumberType::kInt64:
      return nb::dtype<std::int64_t>();
    case NumberType::kFloat16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case NumberType::kFloat32:
      return nb::dtype<float>();
    case NumberType::kFloat64:
    case NumberType::kString:
      break;
  }
  return nb::dtype<double>();
}

nb::object to_bytes(std::vector<std::string> strings) {
  nb::list all;
  for (const std::string& each : strings) all.append(nb::bytes(each.data(), each.size()));
  return all;
}

nb::object to_tensor(TensorValues values, const Tensor& tensor) {
  if (tensor.type == NumberType::kString) return to_bytes(std::move(values.strings));
  return to_array(std::move(values.numbers), dtype_of(tensor.type), {values.rows, tensor.columns});
}

void append_keys(nb::list& arrays, FlatKeys keys, std::size_t width) {
  for (anabranch::AlignedBuffer& ids : keys.ids) {
    const auto type = nb::dtype<std::int64_t>();
    arrays.append(width == 1 ? to_array(std::move(ids), type, {keys.values})
                             : to_array(std::move(ids), type, {keys.rows, width}));
  }
  if (keys.lengths) {
    arrays.append(to_array(*std::move(keys.lengths), nb::dtype<std::int64_t>(), {keys.rows}));
  }
  if (keys.weights) {
    arrays.append(to_array(*std::move(keys.weights), nb::dtype<float>(), {keys.values}));
  }
}

nb::object to_row(std::size_t row) {
  return row == Fault::kWhole ? nb::none() : nb::object(nb::int_(row));
}

// What one argument of `run` holds of Python's, and the column it is.
class HeldColumn {
 public:
  HeldColumn(nb::handle column, bool json) {
    if (column.is_none()) return;
    if (PyObject_CheckBuffer(column.ptr())) {
      const std::string_view bytes = hold(column).text();
      if (json) {
        column_ = JsonText{bytes};
      } else {
        column_ = MessageBytes{bytes};
      }
      return;
    }
    column_ = to_parts(column);
  }

  const SentColumn& column() const noexcept { return column_; }

 private:
  const BufferView& hold(nb::handle buffer) { return held_.emplace_front(buffer); }

  // The numbers of an array without gaps; none where `array` is None.
  template <class T>
  std::span<const T> numbers(nb::handle array) {
    if (array.is_none()) return {};
    const BufferView& view = hold(array);
    const auto address = reinterpret_cast<std::uintptr_t>(view.bytes().data());
    if (view.size() % sizeof(T) != 0 || address % alignof(T) != 0) {
      throw std::invalid_argument("expected numbers on multiples of their size");
    }
    return {reinterpret_cast<const T*>(view.bytes().data()), view.size() / sizeof(T)};
  }

  ArrayParts to_parts(nb::handle column) {
    ArrayParts parts{};
    const nb::object values = column.attr("values");
    const nb::object offsets = column.attr("offsets");
    const nb::object lengths = column.attr("lengths");
    const auto kind = nb::cast<std::string>(values.attr("dtype").attr("name"));
    if (!offsets.is_none()) {
      parts.type = ValueType::kString;
      parts.bytes = hold(values).text();
      parts.offsets = numbers<std::int64_t>(offsets);
    } else if (kind == "int64") {
      parts.type = ValueType::kInt64;
      parts.ints = numbers<std::int64_t>(values);
    } else if (kind == "float32") {
      parts.type = ValueType::kFloat32;
      parts.floats = numbers<float>(values);
    } else {
      throw std::invalid_argument("values: expected int64, float32, or bytes with offsets");
    }
    parts.ragged = !lengths.is_none();
    parts.lengths = numbers<std::uint32_t>(lengths);
    parts.weights = numbers<float>(nb::object(column.attr("weights")));
    parts.missing = numbers<std::uint8_t>(nb::object(column.attr("missing")));
    return parts;
  }

  std::forward_list<BufferView> held_;
  SentColumn column_;
};

bool is_json(std::string_view form) {
  if (form == "json") return true;
  if (form == "message") return false;
  throw std::invalid_argument("form: expected json or message");
}

nb::object run_program(const Program& program, nb::handle columns, std::string_view form,
                       std::size_t rows, const ColumnLimits& limits) {
  const bool json = is_json(form);
  std::deque<HeldColumn> held;
  std::vector<SentColumn> sent;
  for (const nb::handle column : columns) {
    sent.push_back(held.emplace_back(column, json).column());
  }
  Outputs outputs = run_released([&] { return program.run(sent, rows, limits); });

  nb::list arrays;
  for (std::size_t i = 0; i < outputs.tensors.size(); ++i) {
    arrays.append(to_tensor(std::move(outputs.tensors[i]), program.tensors()[i]));
  }
  std::size_t place = 0;
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < program.features().size(); ++i) {
    const Feature& feature = program.features()[i];
    if (feature.makes_keys) {
      append_keys(arrays, std::move(outputs.keys[place++]), feature.form.width);
    }
    const FeatureCounts& found = outputs.counts[i];
    for (const std::uint64_t count : {found.values, found.defaulted, found.out_of_vocabulary,
                                      found.truncated, found.out_of_range}) {
      counts.push_back(static_cast<std::int64_t>(count));
    }
  }
  nb::list faults;
  for (const FeatureFault& each : outputs.faults) {
    faults.append(nb::make_tuple(each.feature, to_row(each.fault.row), each.fault.text));
  }
  return nb::make_tuple(outputs.rows, arrays,
                        to_array(std::move(counts), {outputs.counts.size(), std::size_t{5}}),
                        faults);
}

template <class T>
nb::object copied(std::span<const T> values) {
  return to_array(std::vector<T>(values.begin(), values.end()), {values.size()});
}

// Strings of a column one after another, and where each begins.
std::pair<std::vector<std::uint8_t>, std::vector<std::int64_t>> joined(
    std::span<const std::string_view> strings) {
  std::pair<std::vector<std::uint8_t>, std::vector<std::int64_t>> made;
  auto& [bytes, offsets] = made;
  offsets.reserve(strings.size() + 1);
  offsets.push_back(0);
  for (const std::string_view text : strings) {
    bytes.insert(bytes.end(), text.begin(), text.end());
    offsets.push_back(static_cast<std::int64_t>(bytes.size()));
  }
  return made;
}

// (values, offsets, lengths, weights, missing), faults.
nb::object read_one(const Program& program, std::size_t feature, nb::handle column,
                    std::string_view form, const ColumnLimits& limits) {
  const HeldColumn held(column, is_json(form));
  ColumnStorage storage;
  const ReadColumn read =
      run_released([&] { return program.read(feature, held.column(), limits, storage); });
  const RawColumn& found = read.column;
  nb::object values;
  nb::object offsets = nb::none();
  if (found.type == ValueType::kInt64) {
    values = copied(found.ints);
  } else if (found.type == ValueType::kFloat32) {
    values = copied(found.floats);
  } else {
    auto [bytes, begins] = run_released([&] { return joined(found.strings); });
    const std::size_t size = bytes.size();
    const std::size_t count = begins.size();
    values = to_array(std::move(bytes), {size});
    offsets = to_array(std::move(begins), {count});
  }
  const bool ragged = program.features()[feature].form.ragged;
  nb::list faults;
  for (const Fault& fault : read.faults) {
    faults.append(nb::make_tuple(to_row(fault.row), fault.text));
  }
  return nb::make_tuple(values, offsets, ragged ? copied(found.lengths) : nb::none(),
                        found.weights.empty() ? nb::none() : copied(found.weights),
                        found.missing.empty() ? nb::none() : copied(found.missing), faults);
}

nb::object hash_strings(std::string_view function, nb::handle bytes, nb::handle offsets,
                        std::uint64_t seed, std::uint64_t num_buckets) {
  const HashFunction hash = hash_function(function);
  const BufferView text(bytes);
  const BufferView begins(offsets);
  const ArrayParts parts{ValueType::kString,
                         {},
                         {},
                         text.text(),
                         {reinterpret_cast<const std::int64_t*>(begins.bytes().data()),
                          begins.size() / sizeof(std::int64_t)},
                         false,
                         {},
                         {},
                         {}};
  constexpr std::size_t kAny = static_cast<std::size_t>(-1);
  std::vector<std::int64_t> keys = run_released([&] {
    ColumnStorage storage;
    const RawColumn column =
        read_array_column(parts, {ValueType::kString}, {kAny, kAny, kAny}, storage);
    std::vector<std::int64_t> made;
    made.reserve(column.rows);
    for (const std::string_view each : column.strings) {
      made.push_back(hash_key(hash, seed, num_buckets, each));
    }
    return made;
  });
  const std::size_t count = keys.size();
  return to_array(std::move(keys), {count});
}

nb::object hash_integers(std::string_view function, nb::handle values, std::uint64_t seed,
                         std::uint64_t num_buckets) {
  const HashFunction hash = hash_function(function);
  const BufferView view(values);
  std::vector<std::int64_t> keys(view.size() / sizeof(std::int64_t));
  const auto* numbers = reinterpret_cast<const std::int64_t*>(view.bytes().data());
  run_released([&] {
    char text[kDecimalBytes];
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = hash_key(hash, seed, num_buckets, decimal_text(numbers[i], text));
    }
  });
  const std::size_t count = keys.size();
  return to_array(std::move(keys), {count});
}

}  // namespace

void bind_features(nb::module_& m) {
  m.def("hash_strings", &hash_strings, "function"_a, "bytes"_a, "offsets"_a, "seed"_a,
        "num_buckets"_a,
        nb::sig("def hash_strings(function: str, bytes: typing_extensions.Buffer, offsets: "
                "numpy.typing.NDArray[numpy.int64], seed: int, num_buckets: int) -> "
                "numpy.typing.NDArray[numpy.int64]"),
        "A key of each string; `offsets` says where they begin and end.");
  m.def("hash_integers", &hash_integers, "function"_a, "values"_a, "seed"_a, "num_buckets"_a,
        nb::sig("def hash_integers(function: str, values: numpy.typing.NDArray[numpy.int64], "
                "seed: int, num_buckets: int) -> numpy.typing.NDArray[numpy.int64]"),
        "A key of the decimal text of each integer.");

  nb::class_<ColumnLimits>(m, "ColumnLimits", "What one column may hold.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "max_rows"_a, "max_values"_a,
           "max_string_bytes"_a);

  nb::class_<Program>(m, "FeatureProgram", "All features of a version, compiled.")
      .def(
          "__init__",
          [](Program* self, nb::handle features, nb::handle tensors) {
            new (self) Program(to_program(features, tensors));
          },
          "features"_a, "tensors"_a,
          nb::sig("def __init__(self, features: collections.abc.Sequence[object], tensors: "
                  "collections.abc.Sequence[object]) -> None"))
      .def("run", &run_program, "columns"_a, "form"_a, "rows"_a, "limits"_a,
           nb::sig("def run(self, columns: collections.abc.Sequence[object], form: str, rows: int, "
                   "limits: ColumnLimits) -> tuple[int, "
                   "list[numpy.typing.NDArray[numpy.generic] | list[bytes]], "
                   "numpy.typing.NDArray[numpy.int64], list[tuple[int, int | None, str]]]"),
           "Rows; tensors, then ids, lengths and weights of keys; counts; faults.")
      .def("read", &read_one, "feature"_a, "column"_a, "form"_a, "limits"_a,
           nb::sig("def read(self, feature: int, column: object, form: str, limits: ColumnLimits) "
                   "-> tuple[numpy.typing.NDArray[numpy.int64] | "
                   "numpy.typing.NDArray[numpy.float32] | numpy.typing.NDArray[numpy.uint8], "
                   "numpy.typing.NDArray[numpy.int64] | None, "
                   "numpy.typing.NDArray[numpy.uint32] | None, "
                   "numpy.typing.NDArray[numpy.float32] | None, "
                   "numpy.typing.NDArray[numpy.uint8] | None, list[tuple[int | None, str]]]"),
           "Values, offsets, lengths, weights, missing rows; faults.");
}
