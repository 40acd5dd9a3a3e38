"""Snapshots and tensor declarations."""

import numpy as np
import pytest

from anabranch_wire.errors import InvalidInput
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import DATATYPES, TensorSpec, datatype_of


@pytest.mark.parametrize(
    ("text", "snapshot"),
    [("42", Snapshot("ctr", 42)), ("42+17", Snapshot("ctr", 42, 17))],
)
def test_snapshots_read_and_write_their_text(text: str, snapshot: Snapshot) -> None:
    assert Snapshot.parse("ctr", text) == snapshot
    assert str(snapshot) == text


def test_delta_zero_is_the_version_as_published() -> None:
    assert Snapshot.parse("ctr", "42+0") == Snapshot("ctr", 42)


@pytest.mark.parametrize("text", ["", "0", "42+", "+1", "42+01", "42+-1", "42 ", "42+123456789"])
def test_other_snapshots_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected VERSION or VERSION\+DELTA"):
        Snapshot.parse("ctr", text)


def test_snapshots_of_a_model_are_ordered() -> None:
    assert Snapshot("m", 2, 9) < Snapshot("m", 10) < Snapshot("m", 10, 1)


def test_datatypes_and_dtypes_name_each_other() -> None:
    for name, dtype in DATATYPES.items():
        assert TensorSpec("x", name, (-1,)).dtype == dtype
        assert datatype_of(dtype) == ("UINT16" if name == "BF16" else name)


def test_a_dtype_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no Open Inference Protocol datatype"):
        datatype_of(np.dtype(np.complex64))
