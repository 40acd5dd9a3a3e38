"""
Compiled core of anabranch: buffers, checksums, counters, shared words, JSON numbers, features, embedding store.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, overload

import numpy
import numpy.typing
from numpy.typing import NDArray
from typing_extensions import Buffer


def isa() -> str:
    """Widest instruction set the kernels may use on this machine."""

def aligned_zeros(size_bytes: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]:
    """Zeroed bytes on a 64-byte boundary, owned by the array."""

def crc32c(buffer: Buffer | numpy.typing.NDArray[numpy.generic], crc: int = 0) -> int:
    """CRC32C of ``buffer``, continuing from ``crc``."""

class JsonError(ValueError):
    pass

class JsonTooDeep(JsonError):
    pass

class JsonTooManyElements(JsonError):
    pass

class JsonStringTooLong(JsonError):
    pass

def parse_numbers(buffer: Buffer, datatype: str, expected_count: int, max_depth: int) -> numpy.typing.NDArray[numpy.uint8]:
    """The numbers of a JSON array, as the bytes of their datatype."""

def dump_numbers(buffer: Buffer, datatype: str) -> bytes:
    """The JSON array of the numbers whose bytes ``buffer`` has."""

def detach_numbers(buffer: Buffer, key: str, max_arrays: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A JSON document without its number arrays, and where those are."""

def scan_json(buffer: Buffer, max_depth: int, max_elements: int, max_string_bytes: int) -> None:
    """Checks the limits of a JSON document."""

class CountersPage:
    """A worker's counters in sealed shared memory."""

    @staticmethod
    def create(size_bytes: int) -> CountersPage:
        """A new page; the size is rounded up to whole 4 KiB."""

    @property
    def fd(self) -> int:
        """Descriptor for readers; closed with the page."""

    @property
    def size_bytes(self) -> int: ...

    def counter(self, name: str, labels: Sequence[tuple[str, str]] = []) -> int:
        """Slot of a counter, added if new."""

    def gauge(self, name: str, labels: Sequence[tuple[str, str]] = []) -> int:
        """Slot of a gauge, added if new."""

    def histogram(self, name: str, labels: Sequence[tuple[str, str]], bounds: Sequence[float]) -> int:
        """Slot of a histogram, added if new."""

    def retire(self, slot: int) -> None:
        """Take a series away from readers."""

    @overload
    def add(self, slot: int, amount: int) -> None:
        """Counter or gauge += amount."""

    @overload
    def add(self, slot: int, amount: float) -> None: ...

    def set(self, slot: int, value: float) -> None:
        """Gauge = value."""

    def observe(self, slot: int, value: float) -> None:
        """Count a value in a histogram."""

    def recorder(self, slots: Sequence[int]) -> Recorder:
        """One call for all updates of these series."""

class Recorder:
    """A fixed list of series that are updated together."""

    def record(self, *values: float) -> None:
        """Apply one value to each series, in their order."""

class CountersReader:
    """Read-only view of a counters page."""

    def __init__(self, fd: int) -> None:
        """Map the page behind ``fd``, which stays the caller's."""

    def read(self) -> list[tuple[Literal['counter', 'gauge', 'histogram'], str, list[tuple[str, str]], list[float], list[int], float]]:
        """
        Every live series as (kind, name, labels, bounds, buckets, value or sum).
        """

class SharedWords:
    """Atomic 64-bit words in sealed shared memory."""

    @staticmethod
    def create(words: int) -> SharedWords:
        """New words, all 0, writable."""

    @staticmethod
    def open(fd: int, *, writable: bool) -> SharedWords:
        """The words behind ``fd``, which stays the caller's."""

    @property
    def fd(self) -> int:
        """Descriptor of the words; closed with them."""

    def reader_fd(self) -> int:
        """New descriptor that cannot be written through; the caller closes it."""

    @property
    def words(self) -> int: ...

    @property
    def writable(self) -> bool: ...

    def load(self, index: int, /) -> int:
        """The value of a word; acquires."""

    def store(self, index: int, value: int, /) -> None:
        """Word = value; releases."""

    def add(self, index: int, amount: int, /) -> int:
        """Word += amount, modulo 2^64; returns the sum."""

def hash_strings(function: str, bytes: Buffer, offsets: numpy.typing.NDArray[numpy.int64], seed: int, num_buckets: int) -> numpy.typing.NDArray[numpy.int64]:
    """A key of each string; `offsets` says where they begin and end."""

def hash_integers(function: str, values: numpy.typing.NDArray[numpy.int64], seed: int, num_buckets: int) -> numpy.typing.NDArray[numpy.int64]:
    """A key of the decimal text of each integer."""

class ColumnLimits:
    """What one column may hold."""

    def __init__(self, max_rows: int, max_values: int, max_string_bytes: int) -> None: ...

class FeatureProgram:
    """All features of a version, compiled."""

    def __init__(self, features: Sequence[object], tensors: Sequence[object]) -> None: ...

    def run(self, columns: Sequence[object], form: str, rows: int, limits: ColumnLimits) -> tuple[int, list[numpy.typing.NDArray[numpy.generic] | list[bytes]], numpy.typing.NDArray[numpy.int64], list[tuple[int, int | None, str]]]:
        """Rows; tensors, then ids, lengths and weights of keys; counts; faults."""

    def read(self, feature: int, column: object, form: str, limits: ColumnLimits) -> tuple[numpy.typing.NDArray[numpy.int64] | numpy.typing.NDArray[numpy.float32] | numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.uint32] | None, numpy.typing.NDArray[numpy.float32] | None, numpy.typing.NDArray[numpy.uint8] | None, list[tuple[int | None, str]]]:
        """Values, offsets, lengths, weights, missing rows; faults."""

def row_stride(row_type: str, dim: int) -> int:
    """Bytes from one encoded row to the next."""

def index_bytes(keys: int) -> int:
    """Bytes of a fresh index for so many keys."""

class SegmentWriter:
    """Writes one segment file."""

    def __init__(self, folder: bytes, name: bytes, model_version: int) -> None: ...

    def begin_table(self, name: str, dim: int, row_type: str, keys: str, rows: int, duplicates: str) -> None: ...

    def add(self, keys: object, values: object) -> None:
        """Add float32 rows; keys are None for dense ids."""

    def add_encoded(self, keys: object, rows: object) -> None:
        """Add rows as they lie in memory: uint8, a stride each."""

    def finish(self) -> int:
        """Publish the file; its size in bytes."""

class Segment:
    """A segment that is mapped or was copied."""

    @staticmethod
    def map(fd: int, residency: str) -> Segment:
        """Map what is behind ``fd``, which stays the caller's."""

    @staticmethod
    def copy(fd: int) -> Segment:
        """Copy it into sealed shared memory."""

    @property
    def model_version(self) -> int: ...

    @property
    def format(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def memory_fd(self) -> int:
        """Descriptor of the copy; -1 where it is mapped from a file."""

    def tables(self) -> list[tuple[str, int, Literal['f32', 'f16', 'bf16', 'int8'], Literal['hashed', 'dense_id'], int, int, int, int]]:
        """
        Every table as (name, dim, row type, keys, rows, groups, offset of rows, of keys).
        """

    def verify(self, progress: Callable[[int], None] | None) -> None:
        """Compare all checksums."""

    def huge_page_ratio(self) -> float: ...

    def probes(self, table: int) -> tuple[float, int]:
        """Mean and most groups per hit of a hashed table."""

class Generation:
    """The mutable half of a store, mapped for reading."""

    @staticmethod
    def map(fd: int, segment: Segment, populate: bool) -> Generation:
        """Map what is behind ``fd``, which stays the caller's."""

    @property
    def bytes(self) -> int: ...

    def rows(self, table: int, keys: object, version: int) -> tuple[numpy.typing.NDArray[numpy.float32], numpy.typing.NDArray[numpy.bool_]]:
        """Rows at a version, and which of the keys have one."""

class Change:
    """A change that is prepared."""

    def upsert(self, table: int, keys: object, values: object) -> None:
        """Rows of float32."""

    def upsert_encoded(self, table: int, keys: object, rows: object) -> None:
        """Rows as they lie in memory: uint8, a stride each."""

    def erase(self, table: int, keys: object) -> None: ...

    def counts(self) -> tuple[int, int, int, int, int]:
        """Inserted, updated, deleted, absent, duplicates."""

    @property
    def version(self) -> int: ...

    def apply(self) -> None: ...

    def close(self) -> None:
        """Give back what it took."""

class StoreWriter:
    """The only writer of a generation."""

    @staticmethod
    def create(segment: Segment, capacities: Sequence[tuple[int, int]], version: int) -> StoreWriter:
        """Capacities are pairs of arena rows and keys, one per table."""

    @property
    def fd(self) -> int: ...

    @property
    def version(self) -> int: ...

    def generation(self) -> Generation: ...

    def begin(self) -> Change: ...

    def restore(self, version: int) -> Change: ...

    def reclaim(self, floor: int) -> int: ...

    def stats(self, table: int) -> tuple[int, int, int, int, int, int, float, float]:
        """Live keys, arena rows, used, retired; slots, used; load, mean probe."""

    def memory(self) -> tuple[int, int, int, int]:
        """Bytes of index, arena, undo links, books."""

    def huge_page_ratio(self) -> float: ...

    def grow(self, capacities: Sequence[tuple[int, int]]) -> Growth: ...

class Growth:
    """A new generation in the making."""

    def step(self, rows: int) -> bool: ...

    def finish(self) -> StoreWriter: ...

    def close(self) -> None: ...

def instruction_sets() -> list[str]:
    """What lookups can run on here, the best first."""

class LookupArguments:
    """Arrays bound to a plan; see `LookupPlan`."""

    def bind(self, index: int, ids: numpy.typing.NDArray[Any], bag: numpy.typing.NDArray[Any] | None = None, weights: numpy.typing.NDArray[numpy.float32] | None = None) -> None:
        """Put other arrays in the place of one feature's."""

    @property
    def keys(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Keys looked up, one count per lookup; `run` adds to it."""

    @property
    def misses(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Keys that were absent, one count per lookup; `run` adds to it."""

class LookupPlan:
    """All lookups of a model, compiled."""

    def __init__(self, generation: Generation, lookups: Sequence[object], buffers: Sequence[object], isa: str) -> None: ...

    @property
    def isa(self) -> str:
        """The instruction set it runs on."""

    def bound(self, features: Sequence[object], outputs: Sequence[object]) -> LookupArguments:
        """Arrays for `run`, checked and held."""

    def run(self, arguments: LookupArguments, version: int, rows: int, *, users: int = 0, user_index: numpy.typing.NDArray[numpy.int64] | None = None) -> None:
        """One batch; see `anabranch_runtime.store.LookupPlan`."""
