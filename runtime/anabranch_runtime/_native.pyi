"""
Compiled core of anabranch: buffers, checksums, counters, shared words, JSON numbers.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, overload

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
