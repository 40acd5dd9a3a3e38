"""Every weight is found again by its old name, wherever it went and however often."""

from typing import Any

import numpy as np

from anabranch_graph_opt.optimized import Optimized
from anabranch_testing.optimized_models import cut_all, parsed
from anabranch_wire.weight_targets import ToDense, ToTable

TABLE = np.random.default_rng(0).random((6, 3)).astype(np.float32)
TIED = """g (int64[N] id) => (float[N, K] y)
{ r = Gather(items, id) y = MatMul(r, OTHER) }"""


def tied(other: str, array: Any) -> Optimized:
    model = parsed(TIED.replace("OTHER", "other"), items=TABLE, other=array)
    model.graph.initializer[1].name = other
    model.graph.node[1].input[1] = other
    return cut_all(model)


def test_a_table_and_a_layer_are_found_where_they_are() -> None:
    optimized = tied("out.weight", np.ones((3, 2), np.float32))

    assert optimized.weights == {
        "items": (ToTable(index=0),),
        "out.weight": (ToDense(name="out.weight", transform="none"),),
    }


def test_a_table_that_a_layer_uses_as_well_is_in_both_places() -> None:
    model = parsed(
        """g (int64[N] id) => (float[N, 6] y)
        { r = Gather(items, id) t = Transpose(items) y = MatMul(r, t) }""",
        items=TABLE,
    )

    assert cut_all(model).weights == {
        "items": (ToTable(index=0), ToDense(name="items", transform="none"))
    }


def test_a_numbered_copy_of_a_table_is_found_by_its_numbers() -> None:
    for name in ("onnx::MatMul_183", "val_12", "55"):
        turned = tied(name, np.ascontiguousarray(TABLE.T))
        targets = (ToTable(index=0), ToDense(name=name, transform="transpose"))
        assert turned.weights["items"] == targets


def test_a_square_copy_is_found_as_it_lies() -> None:
    square = np.random.default_rng(1).random((4, 4)).astype(np.float32)
    model = parsed(
        "g (int64[N] id) => (float[N, 4] y) { r = Gather(items, id) y = MatMul(r, val_3) }",
        items=square,
        val_3=square,
    )

    assert cut_all(model).weights["items"] == (
        ToTable(index=0),
        ToDense(name="val_3", transform="none"),
    )


def test_other_numbers_are_no_copy() -> None:
    almost = TABLE.T.copy()
    almost[2, 5] += 1

    assert tied("val_12", almost).weights["items"] == (ToTable(index=0),)


def test_a_copy_that_somebody_named_is_not_tied() -> None:
    assert tied("head.weight", TABLE.T.copy()).weights["items"] == (ToTable(index=0),)


def test_equal_constants_are_no_copies() -> None:
    zeros = np.zeros((6, 3), np.float32)
    model = parsed(TIED.replace("OTHER", "val_12"), items=zeros, val_12=zeros.T.copy())

    assert cut_all(model).weights["items"] == (ToTable(index=0),)


def test_weights_without_numbers_are_no_copies_and_no_fault() -> None:
    model = parsed(
        """g (float[N, 2] x) => (float[N, 2] y, float[N, 0] z)
        { y = Relu(x) a = MatMul(x, w) b = MatMul(x, val_1) z = Add(a, b) }""",
        w=np.zeros((2, 0), np.float32),
        val_1=np.zeros((2, 0), np.float32),
    )

    assert set(cut_all(model).weights) == {"w", "val_1"}


def test_what_nothing_uses_cannot_be_updated() -> None:
    model = parsed("g (float[N] x) => (float[N] y) { y = Relu(x) }", w=np.ones(3, np.float32))

    assert cut_all(model).weights == {}


def test_integers_are_no_weights() -> None:
    model = parsed(
        "g (int64[N] id) => (float[N, 3] y) { c = Gather(kinds, id) y = Gather(items, c) }",
        kinds=np.zeros(9, np.int64),
        items=TABLE,
    )

    assert set(cut_all(model).weights) == {"items"}
