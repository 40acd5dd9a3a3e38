import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from anabranch_wire.binary_tensors import (
    bfloat16_to_float32,
    decode_tensor,
    encode_tensor,
    float32_to_bfloat16,
)
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import DATATYPES, Datatype

FIXED: list[Datatype] = [name for name in DATATYPES if name != "BYTES"]


def texts(*items: object) -> NDArray[np.object_]:
    return np.array(items, np.object_)


@given(st.data(), st.sampled_from(FIXED))
def test_fixed_width_tensors_round_trip(data: st.DataObject, datatype: Datatype) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    array = data.draw(hnp.arrays(DATATYPES[datatype], shape))

    found = decode_tensor(bytes(encode_tensor(array, datatype)), datatype, shape, "x")

    assert found.dtype == DATATYPES[datatype]
    assert found.shape == shape
    assert found.tobytes() == array.tobytes()


@given(hnp.arrays(np.object_, hnp.array_shapes(min_side=0), elements=st.binary(max_size=9)))
def test_bytes_tensors_round_trip(array: NDArray[np.object_]) -> None:
    found = decode_tensor(encode_tensor(array, "BYTES"), "BYTES", array.shape, "x")

    assert found.dtype == np.object_
    assert found.shape == array.shape
    assert found.tolist() == array.tolist()


def test_layout_is_that_of_the_protocol() -> None:
    assert bytes(encode_tensor(np.array([[1, -2]], np.int16), "INT16")) == b"\x01\x00\xfe\xff"
    assert bytes(encode_tensor(np.array([True, False]), "BOOL")) == b"\x01\x00"
    assert bytes(encode_tensor(texts("é", b"", b"\0"), "BYTES")) == (
        b"\x02\0\0\0\xc3\xa9\0\0\0\0\x01\0\0\0\0"
    )


def test_decoding_views_the_bytes_and_encoding_views_the_array() -> None:
    body = bytearray(struct.pack("<3f", 1, 2, 3))
    decoded = decode_tensor(body, "FP32", [3], "x")
    body[0:4] = struct.pack("<f", 9)
    assert decoded[0] == 9

    array = np.zeros((2, 2), np.float32)
    encoded = encode_tensor(array, "FP32")
    array[0, 0] = 7
    assert bytes(encoded[:4]) == struct.pack("<f", 7)

    assert not decode_tensor(b"\1\2", "UINT8", [2], "x").flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3).T,  # strides are not those of the result
        np.arange(6, dtype=">f4").reshape(3, 2),
    ],
)
def test_other_memory_layouts_are_packed(array: NDArray[np.float32]) -> None:
    assert bytes(encode_tensor(array, "FP32")) == array.astype("<f4").tobytes()


def test_fixed_width_strings_are_bytes_tensors() -> None:
    assert bytes(encode_tensor(np.array(["a", "é"]), "BYTES")) == b"\1\0\0\0a\2\0\0\0\xc3\xa9"
    assert bytes(encode_tensor(np.array([b"a"]), "BYTES")) == b"\1\0\0\0a"


@pytest.mark.parametrize(
    ("data", "datatype", "shape", "message"),
    [
        (b"1234567", "FP32", [2], r"x: expected 8 bytes for FP32 \[2\], got 7"),
        (b"", "INT64", [1], r"x: expected 8 bytes for INT64 \[1\], got 0"),
        (b"1234", "INT8", [2, 1 << 62], "x: expected 9223372036854775808 bytes"),
        (b"", "INT8", [-1], r"x: shape \[-1\] has a negative size"),
        (b"1234", "INT8", [-2, -2], "negative size"),
        (b"", "INT8", [0, 1 << 70], "cannot be represented"),
        (b"", "BYTES", [0, 1 << 70], "cannot be represented"),
        (b"1", "INT8", [1] * 100, "cannot be represented"),
        (b"\1\2", "BOOL", [2], "a BOOL byte must be 0 or 1"),
        (b"", "BYTES", [1], "1 BYTES elements do not fit into 0 bytes"),
        (b"\0\0\0\0", "BYTES", [1 << 40], "do not fit"),
        (b"\4\0\0\0abcd\0", "BYTES", [2], "element 1 of 2 has no length"),
        (b"\5\0\0\0abcd", "BYTES", [1], "element 0 claims 5 bytes, 4 are left"),
        (b"\xff\xff\xff\xff", "BYTES", [1], "element 0 claims 4294967295 bytes, 0 are left"),
        (b"\1\0\0\0ab", "BYTES", [1], "1 bytes are left after 1 BYTES elements"),
        (b"a", "BYTES", [0], "1 bytes are left after 0 BYTES elements"),
    ],
)
def test_malformed_tensors_are_refused(
    data: bytes, datatype: Datatype, shape: list[int], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        decode_tensor(data, datatype, shape, "x")


def test_long_elements_are_too_large() -> None:
    data = encode_tensor(texts(b"abcd", b"abcde"), "BYTES")
    with pytest.raises(TooLarge, match="x: BYTES element 1 has 5 bytes, the limit is 4"):
        decode_tensor(data, "BYTES", [2], "x", max_element_bytes=4)


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.zeros(1, np.float64), "FP32"),
        (np.zeros(1, np.int16), "BF16"),
        (np.zeros(1, np.float32), "BYTES"),
        (texts(b"a", 5), "BYTES"),
        (texts(None), "BYTES"),
    ],
)
def test_arrays_of_another_type_are_not_cast(
    array: NDArray[np.generic], datatype: Datatype
) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        encode_tensor(array, datatype)


def test_every_bfloat16_widens_as_ml_dtypes_says() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)

    values = bfloat16_to_float32(bits)

    reference = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(values.view(np.uint32), reference.view(np.uint32))


@given(hnp.arrays(np.uint32, 64))
def test_float32_narrows_as_ml_dtypes_says(bits: NDArray[np.uint32]) -> None:
    values = bits.view(np.float32)

    narrowed = float32_to_bfloat16(values)

    with np.errstate(invalid="ignore"):
        reference = values.astype(ml_dtypes.bfloat16)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(narrowed[numbers], reference.view(np.uint16)[numbers])
    assert np.isnan(bfloat16_to_float32(narrowed[~numbers])).all()


def test_bfloat16_arrays_encode_as_their_bits() -> None:
    array = np.array([1.0, -2.5], ml_dtypes.bfloat16)

    data = encode_tensor(array, "BF16")

    assert bytes(data) == bytes(encode_tensor(array.view(np.uint16), "BF16"))
    assert bfloat16_to_float32(
        np.asarray(decode_tensor(data, "BF16", [2], "x"), np.uint16)
    ).tolist() == [1.0, -2.5]


def test_scalars_and_transposed_views_narrow_too() -> None:
    assert float32_to_bfloat16(np.array(1.5, np.float32)).shape == ()
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(bfloat16_to_float32(float32_to_bfloat16(values)), values)


@given(st.binary(max_size=40), st.lists(st.integers(-1, 4), max_size=3))
def test_any_bytes_decode_as_bytes_tensor_or_are_refused(data: bytes, shape: list[int]) -> None:
    try:
        found = decode_tensor(data, "BYTES", shape, "x")
    except InvalidInput:
        return
    assert bytes(encode_tensor(found, "BYTES")) == data
