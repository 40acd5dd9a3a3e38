"""Safetensors files: read as the library of the format reads them, or refused; written for it."""

import json
import os
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensor_files import (
    NUMPY_TYPES,
    Tensor,
    TensorPlace,
    file_parts,
    read_header,
    read_tensors,
)

CASES = int(os.environ.get("ANABRANCH_FUZZ_CASES", "200"))
ARRAYS: dict[str, NDArray[Any]] = {
    "keys": np.arange(3, dtype=np.int64),
    "values": np.arange(6, dtype=np.float32).reshape(3, 2),
    "half": np.ones((2, 1), np.float16),
    "none": np.empty((0, 4), np.float32),
    "one": np.array(5.0, np.float64),
}
GOOD = save(ARRAYS, {"written": "by the library"})


def read(data: bytes) -> dict[str, Tensor]:
    """Read the bytes of a file."""
    return read_tensors(np.frombuffer(data, np.uint8), "a.safetensors")


def file(header: Any, data: bytes = b"") -> bytes:
    """Return a file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    """Return what a header says of a tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_what_the_library_writes_is_read() -> None:
    found = read(GOOD)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name].array, array)
        assert found[name].shape == found[name].array.shape == array.shape
        assert found[name].bytes == array.nbytes
    assert (found["keys"].dtype, found["half"].dtype) == ("I64", "F16")


def test_bfloat16_is_read_by_its_bits() -> None:
    bits = np.array([0x3F80, 0xC000], "<u2")
    found = read(file({"x": entry("BF16", [2])}, bits.tobytes()))["x"]
    assert (found.dtype, found.array.tolist()) == ("BF16", bits.tolist())


def test_a_file_of_nothing_is_one() -> None:
    assert read(file({})) == {}


def test_a_header_says_where_tensors_lie_and_what_was_said_of_them() -> None:
    found = read_header(lambda begin, end: GOOD[begin:end], len(GOOD), "a.safetensors")

    assert found.metadata == {"written": "by the library"}
    assert sum(place.end - place.begin for place in found.tensors.values()) == sum(
        array.nbytes for array in ARRAYS.values()
    )
    keys = found.tensors["keys"]
    assert keys == TensorPlace("I64", (3,), keys.begin, keys.begin + 24)
    assert np.frombuffer(GOOD[keys.begin : keys.end], "<i8").tolist() == [0, 1, 2]


@pytest.mark.parametrize("left", [0, 5, 20])
def test_a_file_that_becomes_shorter_while_it_is_read_is_refused(left: int) -> None:
    with pytest.raises(InvalidInput, match=r"^a\.safetensors: no safetensors file: "):
        read_header(lambda begin, end: GOOD[begin : min(end, left)], len(GOOD), "a.safetensors")


def test_what_is_written_is_what_the_library_reads() -> None:
    tensors = {
        name: Tensor(dtype, (2, 3), (np.zeros((1, 3), numpy), np.ones((1, 3), numpy)))
        for dtype, numpy in NUMPY_TYPES.items()
        if dtype != "BF16"
        for name in (dtype, f"\u00e9 {dtype}")
    }
    data = b"".join(file_parts(tensors, {"a": "b"}))

    found = load(data)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == NUMPY_TYPES[tensor.dtype]
        assert found[name].tolist() == [[0, 0, 0], [1, 1, 1]]
    header = read_header(lambda begin, end: data[begin:end], len(data), "a")
    assert header.metadata == {"a": "b"}
    assert min(place.begin for place in header.tensors.values()) % 8 == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_parts_that_do_not_make_up_their_tensor_are_not_written(rows: int) -> None:
    tensor = Tensor("F32", (2, 2), [np.zeros((1, 2), np.float32)] * rows)
    with pytest.raises(AssertionError, match="do not make up"):
        list(file_parts({"x": tensor}))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are no header"),
        (b"\x01\x00", "2 bytes are no header"),
        (b"\xff" * 8, "a header of"),
        (file({})[:-1], "a header of 2 bytes in a file of 9"),
        (file(b"not json"), "JSON"),
        (file([]), "Expected `object`"),
        (file(b" {}"), "does not begin with {"),
        (file({"__metadata__": {"a": 1}}), "Expected `str`, got `int`"),
        (file({"x": 5}), "Expected `object`"),
        (file({"x": entry() | {"more": 1}}, b"1234"), "more"),
        (file({"x": entry(shape=[-1])}, b"1234"), "Expected `int` >= 0"),
        (file({"x": entry(shape=[0, 2**62], offsets=(0, 0))}), "x: "),
        (file({"x": entry(shape=[1] * 65)}, b"1234"), "length <= 64"),
        (file({"x": entry("F8_E4M3")}, b"1234"), "elements of F8_E4M3"),
        (file({"x": entry(offsets=(0, 8))}, b"12345678"), "x: bytes 0 to 8 for shape [1]"),
        (file({"x": entry(offsets=(1, 5))}, b"12345"), "x: bytes 1 to 5"),
        (file({"x": entry()}, b"123"), "x: it ends behind the file"),
        (file({"x": entry()}, b"12345"), "1 bytes behind the last tensor"),
        (file({"x": entry(), "y": entry()}, b"1234"), "y: bytes 0 to 4"),
        (file({"x": entry(offsets=(4, 0))}, b"1234"), "x: bytes 4 to 0"),
    ],
)
def test_what_is_no_such_file_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(data)
    assert refused.value.message.startswith("a.safetensors: no safetensors file: ")
    assert why in refused.value.message


@settings(max_examples=CASES)
@given(st.data())
def test_whatever_is_changed_is_read_as_the_library_reads_it_or_refused(
    data: st.DataObject,
) -> None:
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        until = data.draw(st.integers(at, min(len(changed), at + 3)))
        changed[at:until] = data.draw(st.binary(max_size=3))
    try:
        found = read(bytes(changed))
    except InvalidInput:
        return
    try:
        expected = load(bytes(changed))
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError):
        return  # such as element types that NumPy has under another name
    for name, array in expected.items():
        assert found[name].array.tobytes() == array.tobytes()


@settings(max_examples=CASES)
@given(st.binary(max_size=200))
def test_no_bytes_end_in_anything_else(data: bytes) -> None:
    for tried in (data, file(data)):
        with suppress(InvalidInput):
            read(tried)
