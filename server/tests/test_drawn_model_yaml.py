"""Whole versions that rank, drawn with their model.yaml, against a plain reading of that document.

Written as a folder, prepared as a loader does it, asked through both doors' decoders, and run: keys
of lookups and inputs of the graph are what the plain reading says, and so is what is refused.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pyarrow  # type: ignore[import-untyped]  # comes without types
import pyarrow.parquet  # type: ignore[import-untyped]  # comes without types
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.golden.trial import open_trial
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.requests import RankRequest
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_server.limits import Limits
from anabranch_server.ranking.json_requests import read_rank_json
from anabranch_server.ranking.messages import parse_outside, request_of
from anabranch_testing.lengths import is_soak, length
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound, Unsupported
from anabranch_wire.names import ModelName
from drawn_model_yaml import versions
from drawn_rank_requests import json_body, message_body, rank_requests
from plain_features import Column, arrays_differ
from plain_model_requests import PlainAnswer, PlainRefused, plain_answer, plain_graph
from plain_model_rules import refusals
from plain_model_yaml import PlainItems, PlainVersion

LIMITS: Final = ColumnLimits(10_000, 1_000_000, 1_000_000)
ONNX_TYPES: Final = {
    "INT32": onnx.TensorProto.INT32,
    "INT64": onnx.TensorProto.INT64,
    "FP16": onnx.TensorProto.FLOAT16,
    "FP32": onnx.TensorProto.FLOAT,
    "FP64": onnx.TensorProto.DOUBLE,
    "BYTES": onnx.TensorProto.STRING,
}
REQUESTS: Final = 6

Array = NDArray[Any]


def write_graph(version: PlainVersion, path: Path) -> None:
    """Each input is an output too, called `as INPUT`; `score` is the input `anchor`."""
    nodes, inputs, outputs = [], [], []
    for number, (name, spec) in enumerate(version.inputs.items()):
        shape: list[int | str | None] = [
            "N" if at == 0 and size == -1 else None if size == -1 else size
            for at, size in enumerate(spec.shape)
        ]
        kind = ONNX_TYPES[spec.datatype]
        inputs.append(onnx.helper.make_tensor_value_info(name, kind, shape))
        outputs.append(onnx.helper.make_tensor_value_info(f"as {name}", kind, shape))
        nodes.append(onnx.helper.make_node("Identity", [name], [f"as {name}"], f"n{number}"))
    outputs.append(onnx.helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, ["N"]))
    nodes.append(onnx.helper.make_node("Identity", ["anchor"], ["score"]))
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opset), path)


def write_items(items: PlainItems, path: Path) -> None:
    one = {"int64": pyarrow.int64(), "float32": pyarrow.float32(), "string": pyarrow.string()}
    columns: dict[str, Any] = {}
    for name, values in items.columns.items():
        form, _, inner = items.types[name].rstrip(">").partition("<")
        kind = one[inner or form]
        if form == "weighted":
            kind = pyarrow.list_(pyarrow.struct([("ids", kind), ("weights", pyarrow.float32())]))
            values = [
                None if row is None else [{"ids": value, "weights": 1.0} for value in row]
                for row in values
            ]
        elif form == "list":
            kind = pyarrow.list_(kind)
        columns[name] = pyarrow.array(values, kind)
    path.parent.mkdir()
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def write_version(version: PlainVersion, folder: Path, *, as_json: bool) -> None:
    folder.mkdir(parents=True)
    write_graph(version, folder / "model.onnx")
    text = (
        json.dumps(version.document, ensure_ascii=False, indent=1)
        if as_json
        else yaml.dump(version.document, Dumper=_Plain, allow_unicode=True, sort_keys=False)
    )
    note(text)
    note(f"{version.inputs} {version.tables} {version.items}")
    (folder / "model.yaml").write_text(text)
    for name, data in version.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    for name, table in version.tables.items():
        (folder / "tables").mkdir(exist_ok=True)
        np.save(folder / "tables" / f"{name}.npy", np.array(table.rows, np.float32))
        if table.keys is not None:
            np.save(folder / "tables" / f"{name}.keys.npy", np.array(table.keys, np.int64))
    if version.items is not None:
        write_items(version.items, folder / "items" / "0000.parquet")


class _Plain(yaml.SafeDumper):
    """Writes values out, wherever they come twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class Cache:
    """What is kept between versions."""

    def __init__(self, root: Path) -> None:
        self.settings = StoreSettings(
            SegmentCache(root / "segments", 1 << 30),
            BuiltGraphs(root / "graphs", 1 << 30),
            items=ItemCache(root / "items", 1 << 30),
        )
        self.seen: Counter[str] = Counter()
        self.runner = OrtModelRunner()

    def prepare(self, models: Path) -> PreparedVersion:
        found = scan_repository(models).models[ModelName("m")]
        deployment = read_deployment(found.path)
        return prepare_version(found, 1, deployment, self.runner, store=self.settings)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    yield cache
    print(dict(sorted(cache.seen.items())))


@pytest.mark.slow
@pytest.mark.soak
@settings(
    max_examples=length(200, 3_000),
    derandomize=not is_soak(),
    phases=[Phase.generate, *([Phase.shrink] if is_soak() else [])],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_versions_do_what_their_model_yaml_says(cache: Cache, data: st.DataObject) -> None:
    version = data.draw(versions())
    expected = refusals(version)
    root = Path(tempfile.mkdtemp(prefix="drawn"))
    try:
        write_version(version, root / "m" / "1", as_json=data.draw(st.booleans()))
        cache.seen["versions"] += 1
        if expected:
            with pytest.raises((InvalidInput, NotFound, Unsupported)) as refused:
                cache.prepare(root)
            note(str(refused.value))
            cache.seen["versions refused"] += 1
            return
        try:
            prepared = cache.prepare(root)
        except AnabranchError as error:
            raise AssertionError(f"refused: {error.message}") from error
        check_requests(version, prepared, data, cache.seen)
    finally:
        shutil.rmtree(root)


def check_requests(
    version: PlainVersion, prepared: PreparedVersion, data: st.DataObject, seen: Counter[str]
) -> None:
    assert prepared.ranking is not None
    rules = RankingRules(prepared.ranking, prepared.model.outputs)
    segment = None if prepared.store is None else prepared.store.segment
    heads = [f"as {name}" for name in version.inputs]
    with open_trial(prepared, segment, "ort-cpu") as trial:
        for _ in range(REQUESTS):
            sent = data.draw(rank_requests(version))
            bodies = requests_of(version, sent, data)
            seen["requests"] += len(bodies)
            seen["messages"] += len(bodies) - 1
            try:
                answer = plain_answer(version, sent)
            except PlainRefused as why:
                seen["requests refused"] += 1
                for request in bodies:
                    check_refused(rules, request, str(why))
                continue
            prepared_all = [rules.prepare(request, LIMITS) for request in bodies]
            for made in prepared_all:
                check_made(version, made, answer)
            arrays = prepared_all[-1].arrays
            if not answer.rows or answer.bad:
                seen["requests with bad candidates"] += bool(answer.bad)
                continue
            try:
                graph = plain_graph(version, answer)
            except PlainRefused as why:
                with pytest.raises(InvalidInput, match=f"^{why}"):
                    trial.score(arrays, heads)
                seen["keys refused"] += 1
                continue
            found, rows = trial.score(arrays, heads)
            seen["requests run"] += 1
            assert rows == answer.rows
            check_graph(version, found, graph)


def check_refused(rules: RankingRules, request: RankRequest, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        rules.prepare(request, LIMITS)
    assert refused.value.message.startswith(why), refused.value.message


def requests_of(
    version: PlainVersion, sent: Mapping[str, Column], data: st.DataObject
) -> list[RankRequest]:
    """The request as each door decodes it."""
    body = json_body(version, sent, as_text=data.draw(st.booleans()))
    message = message_body(version, sent, raw=data.draw(st.booleans()))
    requests = [read_rank_json(body, Limits())]
    if message is not None:
        requests.append(request_of(parse_outside(message)))
    return requests


def check_made(version: PlainVersion, made: PreparedRanking, answer: PlainAnswer) -> None:
    """Compare what features became."""
    assert made.rows == answer.rows
    assert arrays_differ(made.arrays, answer.arrays) == ""
    assert {row: text[: len(answer.bad.get(row, ""))] for row, text in made.bad.items()} == (
        answer.bad
    )
    assert made.counts.tolist() == answer.counts
    names = [feature["name"] for feature in version.features]
    defaulted = [name for name, one in zip(names, answer.counts, strict=True) if one[1]]
    assert list(made.defaulted) == defaulted
    missed = [row for one in made.missed.values() for row in one.candidates]
    assert missed == answer.missed


def check_graph(
    version: PlainVersion, found: Mapping[str, Array], expected: Mapping[str, Array]
) -> None:
    """Compare the inputs of the graph, as it had them; pooled rows to their last digit but one."""
    buffers = {lookup["output"]["input"] for lookup in version.lookups}
    for name, wanted in expected.items():
        one = found[f"as {name}"]
        wanted = wanted.reshape(one.shape)
        assert one.dtype == wanted.dtype, name
        if name in buffers:
            rtol = 1e-3 if one.dtype == np.float16 else 1e-6  # means divide, and round once more
            np.testing.assert_allclose(one, wanted, rtol=rtol, err_msg=name)
        else:
            assert arrays_differ({name: one}, {name: wanted}) == ""
