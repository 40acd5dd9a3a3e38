// The module: buffers, checksums, counters, shared words and JSON numbers stand here, the embedding
// store in files of its own. The files of this folder are the only ones that know both Python and
// the core. They convert, and release the GIL; no logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "anabranch/aligned_buffer.h"
#include "anabranch/counters_page.h"
#include "anabranch/counters_reader.h"
#include "anabranch/cpu.h"
#include "anabranch/crc32c.h"
#include "anabranch/features/raw_column.h"
#include "anabranch/json_detach.h"
#include "anabranch/json_numbers.h"
#include "anabranch/json_scan.h"
#include "anabranch/shared_words.h"
#include "anabranch/store/errors.h"
#include "conversions.h"
#include "features.h"
#include "store.h"

using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

// An array of bytes that owns `buffer`.
Bytes to_array(anabranch::AlignedBuffer buffer) {
  auto* owned = new anabranch::AlignedBuffer(std::move(buffer));
  nb::capsule owner(owned,
                    [](void* p) noexcept { delete static_cast<anabranch::AlignedBuffer*>(p); });
  return Bytes(owned->data(), {owned->size_bytes()}, owner);
}

anabranch::Datatype to_datatype(std::string_view name) {
  const auto datatype = anabranch::datatype_named(name);
  if (!datatype) {
    throw std::invalid_argument("datatype " + std::string(name) + " has no JSON numbers");
  }
  return *datatype;
}

const char* to_name(anabranch::SeriesKind kind) {
  switch (kind) {
    case anabranch::SeriesKind::kCounter:
      return "counter";
    case anabranch::SeriesKind::kGauge:
      return "gauge";
    case anabranch::SeriesKind::kHistogram:
      break;
  }
  return "histogram";
}

using SeriesTuple = std::tuple<const char*, std::string, std::vector<anabranch::Label>,
                               std::vector<double>, std::vector<std::uint64_t>, double>;

void raise_as(const char* error, const char* message) {
  nb::object type = nb::module_::import_("anabranch_wire.errors").attr(error);
  PyErr_SetString(type.ptr(), message);
}

void translate_errors(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const anabranch::PageFull& full) {
    raise_as("Unavailable", full.what());
  } catch (const anabranch::DamagedPage& damage) {
    raise_as("Corrupt", damage.what());
  } catch (const anabranch::DamagedWords& damage) {
    raise_as("Corrupt", damage.what());
  } catch (const anabranch::features::ColumnTooLarge& large) {
    raise_as("TooLarge", large.what());
  } catch (const anabranch::store::Damaged& damage) {
    raise_as("Corrupt", damage.what());
  } catch (const anabranch::store::Foreign& foreign) {
    raise_as("Unsupported", foreign.what());
  } catch (const anabranch::store::StoreFull& full) {
    raise_as("Unavailable", full.what());
  } catch (const anabranch::store::Refused& refusal) {
    raise_as("InvalidInput", refusal.what());
  } catch (const std::system_error& refusal) {
    PyErr_SetObject(PyExc_OSError, nb::make_tuple(refusal.code().value(), refusal.what()).ptr());
  }
}

void bind_buffers(nb::module_& m) {
  m.def(
      "aligned_zeros",
      [](std::size_t size_bytes) {
        return to_array(
            run_on(size_bytes, [&] { return anabranch::AlignedBuffer::zeroed(size_bytes); }));
      },
      "size_bytes"_a, "Zeroed bytes on a 64-byte boundary, owned by the array.");
}

void bind_checksums(nb::module_& m) {
  m.def(
      "crc32c",
      [](nb::handle buffer, std::uint32_t crc) {
        const BufferView view(buffer);
        return run_on(view.size(), [&] { return anabranch::crc32c(view.bytes(), crc); });
      },
      "buffer"_a, "crc"_a = 0,
      nb::sig("def crc32c(buffer: typing_extensions.Buffer | numpy.typing.NDArray[numpy.generic], "
              "crc: int = 0) -> int"),
      "CRC32C of ``buffer``, continuing from ``crc``.");
}

void bind_json(nb::module_& m) {
  // The specific ones are registered last: translators are tried in reverse order.
  auto json_error = nb::exception<anabranch::JsonError>(m, "JsonError", PyExc_ValueError);
  nb::exception<anabranch::JsonTooDeep>(m, "JsonTooDeep", json_error.ptr());
  nb::exception<anabranch::JsonTooManyElements>(m, "JsonTooManyElements", json_error.ptr());
  nb::exception<anabranch::JsonStringTooLong>(m, "JsonStringTooLong", json_error.ptr());

  m.def(
      "parse_numbers",
      [](nb::handle buffer, std::string_view datatype, std::size_t expected_count,
         std::size_t max_depth) {
        const BufferView view(buffer);
        const auto type = to_datatype(datatype);
        return to_array(run_on(view.size(), [&] {
          return anabranch::parse_numbers(view.text(), type, expected_count, max_depth);
        }));
      },
      "buffer"_a, "datatype"_a, "expected_count"_a, "max_depth"_a,
      nb::sig(
          "def parse_numbers(buffer: typing_extensions.Buffer, datatype: str, expected_count: int, "
          "max_depth: int) -> numpy.typing.NDArray[numpy.uint8]"),
      "The numbers of a JSON array, as the bytes of their datatype.");
  m.def(
      "dump_numbers",
      [](nb::handle buffer, std::string_view datatype) {
        const BufferView view(buffer);
        const auto type = to_datatype(datatype);
        const std::string text =
            run_on(view.size(), [&] { return anabranch::dump_numbers(type, view.bytes()); });
        return nb::bytes(text.data(), text.size());
      },
      "buffer"_a, "datatype"_a,
      nb::sig("def dump_numbers(buffer: typing_extensions.Buffer, datatype: str) -> bytes"),
      "The JSON array of the numbers whose bytes ``buffer`` has.");
  m.def(
      "detach_numbers",
      [](nb::handle buffer, std::string_view key, std::size_t max_arrays) {
        const BufferView view(buffer);
        const auto detached = run_on(
            view.size(), [&] { return anabranch::detach_numbers(view.text(), key, max_arrays); });
        std::vector<std::pair<std::size_t, std::size_t>> places;
        for (const std::string_view array : detached.arrays) {
          const auto begin = static_cast<std::size_t>(array.data() - view.text().data());
          places.emplace_back(begin, begin + array.size());
        }
        return std::pair(nb::bytes(detached.document.data(), detached.document.size()), places);
      },
      "buffer"_a, "key"_a, "max_arrays"_a,
      nb::sig("def detach_numbers(buffer: typing_extensions.Buffer, key: str, max_arrays: int) "
              "-> tuple[bytes, list[tuple[int, int]]]"),
      "A JSON document without its number arrays, and where those are.");
  m.def(
      "scan_json",
      [](nb::handle buffer, std::size_t max_depth, std::size_t max_elements,
         std::size_t max_string_bytes) {
        const BufferView view(buffer);
        run_on(view.size(), [&] {
          anabranch::scan_json(view.text(), {max_depth, max_elements, max_string_bytes});
        });
      },
      "buffer"_a, "max_depth"_a, "max_elements"_a, "max_string_bytes"_a,
      nb::sig("def scan_json(buffer: typing_extensions.Buffer, max_depth: int, max_elements: int, "
              "max_string_bytes: int) -> None"),
      "Checks the limits of a JSON document.");
}

void bind_counters(nb::module_& m) {
  using anabranch::CountersPage;
  using anabranch::CountersReader;
  using anabranch::Recorder;
  using Labels = std::vector<anabranch::Label>;

  nb::class_<CountersPage>(m, "CountersPage", "A worker's counters in sealed shared memory.")
      .def_static(
          "create", [](std::size_t size_bytes) { return new CountersPage(size_bytes); },
          "size_bytes"_a, "A new page; the size is rounded up to whole 4 KiB.")
      .def_prop_ro("fd", &CountersPage::fd, "Descriptor for readers; closed with the page.")
      .def_prop_ro("size_bytes", [](const CountersPage& page) { return page.bytes().size(); })
      .def(
          "counter",
          [](CountersPage& page, std::string_view name, const Labels& labels) {
            return page.counter(name, labels);
          },
          "name"_a, "labels"_a = Labels{}, "Slot of a counter, added if new.")
      .def(
          "gauge",
          [](CountersPage& page, std::string_view name, const Labels& labels) {
            return page.gauge(name, labels);
          },
          "name"_a, "labels"_a = Labels{}, "Slot of a gauge, added if new.")
      .def(
          "histogram",
          [](CountersPage& page, std::string_view name, const Labels& labels,
             const std::vector<double>& bounds) { return page.histogram(name, labels, bounds); },
          "name"_a, "labels"_a, "bounds"_a, "Slot of a histogram, added if new.")
      .def("retire", &CountersPage::retire, "slot"_a, "Take a series away from readers.")
      .def("add", nb::overload_cast<anabranch::Slot, std::uint64_t>(&CountersPage::add), "slot"_a,
           "amount"_a, "Counter or gauge += amount.")
      .def("add", nb::overload_cast<anabranch::Slot, double>(&CountersPage::add), "slot"_a,
           "amount"_a)
      .def("set", &CountersPage::set, "slot"_a, "value"_a, "Gauge = value.")
      .def("observe", &CountersPage::observe, "slot"_a, "value"_a, "Count a value in a histogram.")
      .def(
          "recorder",
          [](const CountersPage& page, const std::vector<anabranch::Slot>& slots) {
            return Recorder(page, slots);
          },
          "slots"_a, nb::keep_alive<0, 1>(), "One call for all updates of these series.");

  nb::class_<Recorder>(m, "Recorder", "A fixed list of series that are updated together.")
      .def(
          "record",
          [](const Recorder& recorder, nb::args values) {
            if (values.size() != recorder.size()) {
              throw std::invalid_argument("expected " + std::to_string(recorder.size()) +
                                          " values, got " + std::to_string(values.size()));
            }
            double numbers[Recorder::kMaxSeries];
            for (std::size_t i = 0; i < values.size(); ++i) {
              numbers[i] = PyFloat_AsDouble(nb::handle(values[i]).ptr());
              if (numbers[i] == -1.0 && PyErr_Occurred()) throw nb::python_error();
            }
            recorder.record({numbers, values.size()});
          },
          nb::sig("def record(self, *values: float) -> None"),
          "Apply one value to each series, in their order.");

  nb::class_<CountersReader>(m, "CountersReader", "Read-only view of a counters page.")
      .def(nb::init<int>(), "fd"_a, "Map the page behind ``fd``, which stays the caller's.")
      .def(
          "read",
          [](const CountersReader& reader) {
            std::vector<SeriesTuple> all;
            for (auto& series : run_on(reader.size_bytes(), [&] { return reader.read(); })) {
              all.emplace_back(to_name(series.kind), std::move(series.name),
                               std::move(series.labels), std::move(series.bounds),
                               std::move(series.buckets), series.value);
            }
            return all;
          },
          nb::sig("def read(self) -> list[tuple[typing.Literal['counter', 'gauge', 'histogram'], "
                  "str, list[tuple[str, str]], list[float], list[int], float]]"),
          "Every live series as (kind, name, labels, bounds, buckets, value or sum).");
}

void bind_shared_words(nb::module_& m) {
  using anabranch::SharedWords;

  nb::class_<SharedWords>(m, "SharedWords", "Atomic 64-bit words in sealed shared memory.")
      .def_static("create", &SharedWords::create, "words"_a, "New words, all 0, writable.")
      .def_static("open", &SharedWords::open, "fd"_a, nb::kw_only(), "writable"_a,
                  "The words behind ``fd``, which stays the caller's.")
      .def_prop_ro("fd", &SharedWords::fd, "Descriptor of the words; closed with them.")
      .def("reader_fd", &SharedWords::reader_fd,
           "New descriptor that cannot be written through; the caller closes it.")
      .def_prop_ro("words", &SharedWords::words)
      .def_prop_ro("writable", &SharedWords::writable)
      // Arguments without names: nanobind then calls straight through.
      .def("load", &SharedWords::load, nb::sig("def load(self, index: int, /) -> int"),
           "The value of a word; acquires.")
      .def("store", &SharedWords::store,
           nb::sig("def store(self, index: int, value: int, /) -> None"), "Word = value; releases.")
      .def("add", &SharedWords::add, nb::sig("def add(self, index: int, amount: int, /) -> int"),
           "Word += amount, modulo 2^64; returns the sum.");
}

}  // namespace

NB_MODULE(_native, m) {
  // At exit a daemon thread may still hold a page or a recorder; that is no leak worth a message.
  nb::set_leak_warnings(false);
  m.doc() =
      "Compiled core of anabranch: buffers, checksums, counters, shared words, JSON numbers, "
      "features, embedding store.";
  nb::register_exception_translator(translate_errors);
  m.def("isa", &anabranch::cpu::isa, "Widest instruction set the kernels may use on this machine.");
  bind_buffers(m);
  bind_checksums(m);
  bind_json(m);
  bind_counters(m);
  bind_shared_words(m);
  bind_features(m);
  bind_store_segments(m);
  bind_store_writer(m);
  bind_store_lookup(m);
}
