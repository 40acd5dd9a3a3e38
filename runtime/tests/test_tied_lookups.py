"""Plans tied to graphs: which inputs a request has, and what cannot be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch_runtime.features import FeatureInput, FeaturePlace
from anabranch_runtime.lookups import Lookups, lookups_of
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_testing.looked_up import looked_up_plan
from anabranch_wire.errors import AnabranchError, InvalidInput, Unsupported
from anabranch_wire.lookups import Ids, Lengths, Offsets, Values
from anabranch_wire.plan import Graphs, Plan
from anabranch_wire.tensors import TensorSpec

GRAPH = (
    TensorSpec("user", "FP32", (-1, 3)),
    TensorSpec("x", "FP32", (-1, 1)),
    TensorSpec("rows", "FP32", (-1, 9)),
)


def changed(index: int, **fields: Any) -> Plan:
    """The plan with other fields of one lookup."""
    plan = looked_up_plan()
    lookups = list(plan.lookups)
    lookups[index] = msgspec.structs.replace(lookups[index], **fields)
    return msgspec.structs.replace(plan, lookups=tuple(lookups))


def tied(plan: Plan, users: tuple[str, ...] = ()) -> Lookups:
    found = lookups_of(plan, GRAPH, users)
    assert found is not None
    return found


def test_a_request_has_the_dense_inputs_and_then_each_feature() -> None:
    found = tied(looked_up_plan(), users=("city", "user"))

    assert found.request_inputs == (
        TensorSpec("x", "FP32", (-1, 1)),
        TensorSpec("city", "INT64", (-1, 1)),
        TensorSpec("tags", "INT64", (-1,)),
        TensorSpec("pair", "INT64", (-1, 2)),
        TensorSpec("clicks", "INT64", (-1,)),
    )
    assert found.features == (
        FeatureInput("city", is_user=True),
        FeatureInput("tags", 1000, ragged=True, weighted=True),
        FeatureInput("pair", 2),
        FeatureInput("clicks", 1000, ragged=True, is_user=True, once=True),
    )
    assert (found.dense, found.buffers) == ((1,), (2, 0))
    assert found.places == (
        FeaturePlace(1, None, None),
        FeaturePlace(2, 3, 4),
        FeaturePlace(5, None, None),
        FeaturePlace(6, 7, None),
    )


def test_several_lookups_may_read_one_feature() -> None:
    plan = looked_up_plan()
    again = msgspec.structs.replace(
        plan.lookups[1],
        combiner="max",
        weights=None,
        max_length=7,
        output=msgspec.structs.replace(plan.lookups[1].output, column=9),
    )
    buffers = (msgspec.structs.replace(plan.buffers[0], columns=12), plan.buffers[1])
    plan = msgspec.structs.replace(plan, lookups=(*plan.lookups, again), buffers=buffers)
    graph = (*GRAPH[:2], replace(GRAPH[2], shape=(-1, 12)))

    found = lookups_of(plan, graph)

    assert found is not None
    assert found.sources == (0, 1, 2, 3, 1)
    assert found.features[1] == FeatureInput("tags", 7, ragged=True, weighted=True)


def test_a_plan_without_lookups_ties_to_nothing() -> None:
    plan = msgspec.structs.replace(looked_up_plan(), lookups=(), buffers=())

    assert lookups_of(plan, GRAPH) is None


@pytest.mark.parametrize(
    ("plan", "error", "text"),
    [
        (changed(0, ids=Ids(input="x")), InvalidInput, "input of the model is called 'x'"),
        (changed(0, ids=Ids(input="tags.offsets")), InvalidInput, "is called 'tags.offsets'"),
        (changed(0, ids=Ids(input="x", columns=(0, 1))), Unsupported, "takes ids from features"),
        (changed(0, ids=Ids(input="city", add=4)), Unsupported, "takes ids from features"),
        (changed(1, lengths=Lengths(input="n")), Unsupported, "expected 'tags.lengths' beside id"),
        (changed(1, lengths=Offsets(input="n")), Unsupported, "expected 'tags.offsets' beside id"),
        (changed(1, weights=Values(input="w")), Unsupported, "expected 'tags.weights' beside ids"),
        (changed(2, ids=Ids(input="city")), InvalidInput, "differ in how many ids a row has"),
        (
            changed(3, ids=Ids(input="tags"), lengths=Lengths(input="tags.lengths")),
            InvalidInput,
            "lookups of feature 'tags' differ in their side",
        ),
        (
            msgspec.structs.replace(
                looked_up_plan(), graphs=Graphs(dense="d.onnx", prelude="p.onnx")
            ),
            Unsupported,
            "runs no prelude",
        ),
    ],
)
def test_a_plan_that_cannot_be_served_is_refused(
    plan: Plan, error: type[AnabranchError], text: str
) -> None:
    with pytest.raises(error, match=text):
        lookups_of(plan, GRAPH)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TensorSpec("rows", "FP32", (-1, 8)), r"is FP32 \[-1, 9\], the graph's input is FP32"),
        (TensorSpec("rows", "FP16", (-1, 9)), r"the graph's input is FP16 \[-1, 9\]"),
        (TensorSpec("rows", "FP32", (9,)), r"the graph's input is FP32 \[9\]"),
        (TensorSpec("others", "FP32", (-1, 9)), "buffer 'rows' is no input of the graph"),
    ],
)
def test_buffers_are_inputs_of_the_graph(spec: TensorSpec, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        lookups_of(looked_up_plan(), (*GRAPH[:2], spec))


def test_buffers_have_the_rows_on_their_first_axis() -> None:
    with pytest.raises(ValueError, match="rows on axis 0"):
        DenseModel(
            Path("model.onnx"),
            GRAPH,
            (TensorSpec("y", "FP32", (-1, 1)),),
            RowLayout(False, 1, (0, 0, None), (0,)),
            lookups=tied(looked_up_plan()),
        )
