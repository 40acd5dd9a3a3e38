import numpy as np
import pytest

from anabranch_server.processes.arrays import array_of, array_plan
from anabranch_server.processes.plans import ArrayPlan
from anabranch_wire.errors import Corrupt
from anabranch_wire.tensors import DATATYPES, Datatype


@pytest.mark.parametrize("datatype", sorted(DATATYPES))
def test_an_array_comes_back_as_it_was(datatype: Datatype) -> None:
    if datatype == "BYTES":
        array = np.array([[b"", b"a\0b"], [b"x" * 70_000, b"\xff"]], np.object_)
    else:
        array = np.arange(6).reshape(2, 3).astype(DATATYPES[datatype])

    back = array_of(array_plan(array.T, datatype))

    assert back.dtype == DATATYPES[datatype]
    assert back.shape == array.T.shape
    assert back.tolist() == array.T.tolist()


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0)])
def test_shapes_without_axes_or_elements_are_kept(shape: tuple[int, ...]) -> None:
    assert array_of(array_plan(np.ones(shape, np.float32), "FP32")).shape == shape


@pytest.mark.parametrize(
    "plan",
    [
        ArrayPlan("FP32", (2,), b"1234567"),
        ArrayPlan("FP32", (-1,), b""),
        ArrayPlan("FP31", (1,), b"1234"),
        ArrayPlan("BYTES", (2,), b"\1\0\0\0a"),
        ArrayPlan("BYTES", (1 << 40,), b"\0\0\0\0"),
        ArrayPlan("BOOL", (1,), b"\2"),
    ],
)
def test_bytes_that_are_no_such_array_are_corrupt(plan: ArrayPlan) -> None:
    with pytest.raises(Corrupt):
        array_of(plan)
