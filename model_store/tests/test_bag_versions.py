"""Versions whose embedding bags are pooled by their lookups: compared with the original, by far."""

from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_versions import CutVersion
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.lookups import Offsets, Values
from anabranch_wire.names import ModelName
from anabranch_wire.plan import Plan

MASKED: Final = """
masked (int64[N, 5] ids, float[N, 3] x) => (float[N, 1] p)
<int64 zero = {0}, int64[1] second = {1}, int64[1] third = {2}> {
  few = Constant <value_float = 0.00000001> () rows = Gather(items, ids)
  b = Equal(ids, zero) k = Not(b) mask = Cast <to = 1> (k) m = Unsqueeze(mask, third)
  v = Mul(rows, m) s = ReduceSum <keepdims = 0> (v, second)
  c = ReduceSum(mask, second) e = Add(c, few) mean = Div(s, e)
  all = Concat <axis = 1> (mean, x) y = MatMul(all, w) p = Sigmoid(y)
}
"""
RAGGED: Final = """
ragged (int64[K] ids, float[K] factors, int64[N] offsets, float[N, 3] x) => (float[N, 1] p)
<bool go = {1}, int64[1] first = {0}, int64[1] second = {1},
 int64[1] far = {9223372036854775807}> {
  k = Shape(ids) bounds = Concat <axis = 0> (offsets, k)
  ends = Slice(bounds, second, far, first) n = Shape(ends) turns = Squeeze(n)
  bags = Loop (turns, go) <body = b (int64 i, bool c) => (bool d, float[8] pooled) {
    d = Identity(c) s = Gather(bounds, i) e = Gather(ends, i)
    a = Unsqueeze(s, first) z = Unsqueeze(e, first)
    keys = Slice(ids, a, z, first) bag = Gather(items, keys)
    f = Slice(factors, a, z, first) g = Unsqueeze(f, second) v = Mul(bag, g)
    pooled = ReduceSum <keepdims = 0> (v, first) }>
  all = Concat <axis = 1> (bags, x) y = MatMul(all, w) p = Sigmoid(y)
}
"""
BAG_INPUTS: Final = """
inputs:
  ids: {axis: ids, bag: offsets}
  factors: {axis: ids, bag: offsets}
  offsets: {axis: bag}
  x: {axis: rows}
"""


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


def prepare(root: Path, graph: str, yaml: str, runner: OrtModelRunner) -> PreparedVersion:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    rng = np.random.default_rng(2)
    for name, shape in (("items", (400, 8)), ("w", (11, 1))):
        numbers = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    folder = root / "models" / "m" / "1"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "model.yaml").write_text(f"optimize: {{min_table_bytes: 0}}\n{yaml}")
    found = scan_repository(root / "models").models[ModelName("m")]
    settings = StoreSettings(
        SegmentCache(root / "cache" / "segments", 1 << 30),
        BuiltGraphs(root / "cache" / "cut", 1 << 30),
    )
    return prepare_version(found, 1, read_deployment(found.path), runner, store=settings)


def plan_of(prepared: PreparedVersion) -> Plan:
    """Return the plan of a version that was cut and found equal to its original."""
    assert isinstance(prepared.cut, CutVersion)
    assert prepared.cut.parity.ok
    assert prepared.cut.parity.refused >= 2  # ids beyond both ends of the table
    assert prepared.store is not None
    return prepared.store.plan


def test_a_masked_mean_is_pooled_by_the_lookup(tmp_path: Path, runner: OrtModelRunner) -> None:
    plan = plan_of(prepare(tmp_path, MASKED, "", runner))

    [lookup] = plan.lookups
    assert (lookup.combiner, lookup.max_length) == ("sum", 5)
    assert lookup.weights == Values(input="ab_weights_0")
    assert [buffer.columns for buffer in plan.buffers] == [8]


def test_bags_of_varying_length_are_pooled_by_the_lookup(
    tmp_path: Path, runner: OrtModelRunner
) -> None:
    plan = plan_of(prepare(tmp_path, RAGGED, BAG_INPUTS, runner))

    [lookup] = plan.lookups
    assert (lookup.combiner, lookup.lengths) == ("sum", Offsets(input="offsets"))
    assert lookup.weights == Values(input="factors")
    assert plan.pass_through == ("x",)
