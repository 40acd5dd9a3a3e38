"""Graphs written anew with other weights: only these differ, wherever and however numbers lie."""

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_model_store.deltas.graph_splicing import write_graph_with
from anabranch_model_store.deltas.graph_tensors import GraphTensors
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.errors import Corrupt, NotFound

TYPES = (np.float32, np.float16, np.float64, ml_dtypes.bfloat16)
Arrays = dict[str, NDArray[Any]]


def model(weights: Arrays, form: str = "raw") -> onnx.ModelProto:
    """A graph that does nothing, with weights stored in one of the forms that ONNX has."""
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }'
    )
    for name, array in weights.items():
        tensor = onnx.numpy_helper.from_array(array, name)
        if form == "typed" and array.dtype in (np.float32, np.float64):
            tensor.ClearField("raw_data")
            field = tensor.float_data if array.dtype == np.float32 else tensor.double_data
            field.extend(array.ravel().tolist())
        tensor.doc_string = f"what {name} is"
        made.graph.initializer.append(tensor)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(3), "whole numbers"))
    return made


@st.composite
def drawn_weights(draw: st.DrawFn) -> Arrays:
    found: Arrays = {}
    for number in range(draw(st.integers(1, 5))):
        shape = draw(st.lists(st.integers(0, 5), max_size=3))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        found[f"w{number}"] = np.asarray(rng.normal(size=shape)).astype(
            draw(st.sampled_from(TYPES))
        )
    return found


@given(drawn_weights(), st.sampled_from(("raw", "typed", "beside")), st.data())
@settings(max_examples=40)
def test_what_is_replaced_is_new_and_everything_else_is_as_it_was(
    weights: Arrays, form: str, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(weights)), unique=True))
    new = {name: np.asarray(weights[name] * 2 + 1).astype(weights[name].dtype) for name in names}
    with tempfile.TemporaryDirectory() as root:
        source, place = Path(root) / "old" / "model.onnx", Path(root) / "new"
        source.parent.mkdir()
        place.mkdir()
        proto = model(weights, form)
        if form == "beside":
            (source.parent / "data").mkdir()
            convert_model_to_external_data(proto, location="data/weights.bin", size_threshold=1)
        onnx.save(proto, source)
        graph = GraphTensors.read(source)

        path = write_graph_with(graph, new, place)

        # ONNX's own library reads no numbers of files that have two names.
        found = onnx.load(path, load_external_data=False)
        before = onnx.load(source, load_external_data=False)
        for one, old in zip(found.graph.initializer, before.graph.initializer, strict=True):
            assert (one.name, one.doc_string) == (old.name, old.doc_string)
            if not one.external_data:
                expected = new.get(one.name, onnx.numpy_helper.to_array(old))
                array = onnx.numpy_helper.to_array(one)
                assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
                assert array.tobytes() == expected.tobytes()
        for each in (found, before):
            each.graph.ClearField("initializer")
        assert found == before
        reread = GraphTensors.read(path)
        for name, array in (weights | new).items():
            assert reread.array(name).tobytes() == array.tobytes()


def test_numbers_beside_the_graph_run_as_those_inside(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 64] x) => (float[N, 8] y)'
        "{ h = MatMul(x, w) y = Add(h, b) }"
    )
    rng = np.random.default_rng(1)
    for name, shape in (("w", (64, 8)), ("b", (8,))):
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    convert_model_to_external_data(proto, location="model.data", size_threshold=1)
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    onnx.save(proto, tmp_path / "old" / "model.onnx")
    new = rng.normal(size=(64, 8)).astype(np.float32)

    graph = GraphTensors.read(tmp_path / "old" / "model.onnx")
    path = write_graph_with(graph, {"w": new}, tmp_path / "new")

    x = rng.normal(size=(5, 64)).astype(np.float32)
    found = OrtModelRunner().run(path, {"x": x})["y"]
    np.testing.assert_allclose(
        np.asarray(found, np.float64),
        x @ new + graph.array("b").astype(np.float32),
        rtol=0,
        atol=1e-5,
    )


@given(st.binary(max_size=200))
@settings(max_examples=80)
def test_what_is_no_graph_is_corrupt(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "model.onnx"
        path.write_bytes(data)
        try:
            graph = GraphTensors.read(path)
        except Corrupt:
            return
        assert graph.size == len(data)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=80)
def test_a_damaged_graph_is_corrupt_or_still_one(place: int, byte: int) -> None:
    data = bytearray(model({"w": np.ones((4, 4), np.float32)}).SerializeToString())
    data[place % len(data)] = byte
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "model.onnx"
        path.write_bytes(data)
        try:
            graph = GraphTensors.read(path)
            for name, tensor in graph.tensors.items():
                if tensor.dtype is not None and tensor.external is None:
                    graph.array(name)
        except Corrupt:
            pass


def test_a_missing_graph_and_a_cut_one_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(NotFound, match=r"model\.onnx: no such file"):
        GraphTensors.read(path)

    data = model({"w": np.ones((4, 4), np.float32)}).SerializeToString()
    path.write_bytes(data)
    graph = GraphTensors.read(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(Corrupt):
        GraphTensors.read(path)
    path.write_bytes(data[: graph.tensors["w"].field.begin + 40])
    with pytest.raises(Corrupt, match="ends inside of the weight 'w'"):
        graph.array("w")
