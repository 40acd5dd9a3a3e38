import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from anabranch_runtime.buffers import aligned_array

_MORE_THAN_THERE_IS = """
import resource
import numpy as np
from anabranch_runtime.buffers import aligned_array

block = 64 << 20
with open("/proc/self/statm") as statm:
    taken = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 4 * block,) * 2)
for _ in range(20):
    aligned_array(block, np.uint8)
kept = []
try:
    for _ in range(20):
        kept.append(aligned_array(block, np.uint8))
except MemoryError:
    pass
assert 0 < len(kept) < 20, "the limit does not hold"
"""
"""In a process of its own: what other threads of this one take does not count."""

DTYPES = ["?", "i1", "u2", "f2", "i4", "f4", "i8", "f8", "c16", "S3"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (7, 0, 2), (1000,)])
def test_arrays_are_zeroed_aligned_and_contiguous(shape: tuple[int, ...], dtype: str) -> None:
    array = aligned_array(shape, dtype)

    assert array.shape == shape
    assert array.dtype == np.dtype(dtype)
    assert array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.tobytes() == bytes(array.nbytes)


def test_an_integer_is_a_shape_of_one_axis() -> None:
    assert aligned_array(4, np.float32).shape == (4,)


def test_arrays_do_not_share_memory() -> None:
    first, second = aligned_array(16, "f4"), aligned_array(16, "f4")

    first[:] = 1

    assert not second.any()


def test_a_view_keeps_the_memory_alive() -> None:
    array = aligned_array(1000, "i4")
    array[:] = np.arange(1000)
    tail = array[990:]
    owner = weakref.ref(array)

    del array
    gc.collect()
    aligned_array(1000, "i4").fill(-1)

    assert owner() is None
    assert tail.tolist() == list(range(990, 1000))


def test_memory_is_given_back() -> None:
    subprocess.run([sys.executable, "-c", _MORE_THAN_THERE_IS], check=True, timeout=60)


@pytest.mark.parametrize(
    "shape", [(-1,), (4, -2), (sys.maxsize,), (1 << 40, 1 << 40), (0, -1), (1 << 200,)]
)
def test_impossible_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no array can have shape"):
        aligned_array(shape, np.float64)


def test_too_much_memory_names_the_array() -> None:
    with pytest.raises(
        MemoryError, match=r"cannot allocate 4611686018427387904 bytes for \(\d+,\)"
    ):
        aligned_array((1 << 62,), np.uint8)


def test_object_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold Python objects"):
        aligned_array(3, object)
