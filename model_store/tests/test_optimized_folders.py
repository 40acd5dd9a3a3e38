"""Version folders that are made ahead of time: complete, checked, and served as what they were."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anabranch_graph_opt.reporting import report as reports
from anabranch_graph_opt.running import Array
from anabranch_model_store import optimized_folders
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_trials import open_cut_trial
from anabranch_model_store.cut_versions import CutVersion
from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import ModelFolder, VersionFolder
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.verification import verify_folder
from anabranch_model_store.version_files import verify_version
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire import manifest, plan
from anabranch_wire.errors import (
    AnabranchError,
    Conflict,
    InvalidInput,
    NotFound,
    Unsupported,
)
from anabranch_wire.names import ModelName
from anabranch_wire.snapshots import Snapshot

ROWS, DIM = 50, 4
FILES = [
    "dense.onnx",
    "manifest.json",
    "plan.json",
    "report.html",
    "report.json",
    "tables/0000.seg",
]


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "exported").mkdir()
    path = tmp_path / "exported" / "click.onnx"
    onnx.save(click_model(), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "repository" / "ctr" / "7"


def click_model(tables: tuple[str, ...] = ("items",), rows: int = ROWS) -> onnx.ModelProto:
    """y = sum of the rows of `item` of all tables, and of price; no table: price alone."""
    rng = np.random.default_rng(2)
    arrays = {name: rng.random((rows, DIM), np.float32) for name in tables}
    nodes, terms = [], ["price"]
    for name in tables:
        nodes.append(helper.make_node("Gather", [name, "item"], [f"{name}_read"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_read", "flat"], [f"{name}_row"]))
        terms.append(f"{name}_row")
    nodes.append(helper.make_node("Concat", terms, ["all"], axis=1))
    nodes.append(helper.make_node("ReduceSum", ["all", "axis"], ["y"], keepdims=1))
    constants = {"axis": np.array([1]), "flat": np.array([0, DIM])}
    item = helper.make_tensor_value_info("item", TensorProto.INT64, ["N", 1])
    price = helper.make_tensor_value_info("price", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(
        nodes,
        "click",
        [item, price] if tables else [price],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
        [numpy_helper.from_array(a, name) for name, a in {**arrays, **constants}.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cut_all(model: Path, folder: Path, runner: OrtModelRunner, **options: object) -> reports.Report:
    request = OptimizeRequest(model, folder, min_table_bytes=0, **options)  # type: ignore[arg-type]  # of many types
    return optimize_folder(request, runner)


def listed(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def prepared(folder: Path, runner: OrtModelRunner, scratch: Path) -> PreparedVersion:
    number, name = int(folder.name), ModelName(folder.parent.name)
    version = VersionFolder(number, folder, (folder / "manifest.json").is_file())
    store = StoreSettings(
        segments=SegmentCache(scratch / "segments", 0), graphs=BuiltGraphs(scratch / "graphs", 0)
    )
    model_folder = ModelFolder(name, folder.parent, {number: version})
    return prepare_version(model_folder, number, Deployment(), runner, store=store)


def batch(rows: int) -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(rows)
    price = rng.random((rows, 2), np.float32)
    return {"item": rng.integers(-ROWS, ROWS, (rows, 1)), "price": price}


def test_the_folder_is_a_complete_version(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    report = cut_all(model, folder, runner)

    assert listed(folder) == FILES
    files = verify_version(folder, Snapshot(ModelName("ctr"), 7))
    assert files.unlisted == ()
    document = manifest.decode((folder / "manifest.json").read_bytes())
    assert (document.model, document.version) == ("ctr", 7)
    assert document.model_file == "dense.onnx"
    assert document.structure_hash == report.structure_hash
    assert [(table.name, table.rows, table.dim) for table in document.tables] == [
        ("items", ROWS, DIM)
    ]
    assert reports.decode((folder / "report.json").read_bytes()) == report
    assert [path.name for path in folder.parent.iterdir()] == ["7"]  # nothing is left over


def test_the_plan_says_what_callers_send(model: Path, folder: Path, runner: OrtModelRunner) -> None:
    cut_all(model, folder, runner)

    found = plan.decode((folder / "plan.json").read_bytes())

    shapes = {one.name: (one.datatype, one.shape, one.symbols) for one in found.inputs}
    assert shapes == {
        "item": ("INT64", (-1, 1), ("N", None)),
        "price": ("FP32", (-1, 2), ("N", None)),
    }
    assert found.source.file == "click.onnx"


def test_it_is_served_as_the_original_would_be(
    model: Path, folder: Path, runner: OrtModelRunner, tmp_path: Path
) -> None:
    cut_all(model, folder, runner)
    shutil.copytree(model.parent, folder.parent / "8")
    (folder.parent / "8" / "click.onnx").rename(folder.parent / "8" / "model.onnx")

    ahead = prepared(folder, runner, tmp_path / "a")
    whole = prepared(folder.parent / "8", runner, tmp_path / "b")

    assert ahead.model.inputs == whole.model.inputs
    assert ahead.model.outputs == whole.model.outputs
    assert ahead.model.rows == whole.model.rows
    assert ahead.model.rows.can_merge
    for one, two in zip(ahead.examples, whole.examples, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(array, two[name])
    assert isinstance(ahead.cut, CutVersion)
    assert [verdict.table for verdict in ahead.cut.verdicts] == ["items"]
    assert ahead.cut.parity.cases > 0
    assert ahead.store is not None
    with open_cut_trial(ahead.model, ahead.store.segment) as trial:
        for rows in (1, 9):
            inputs = batch(rows)
            expected, found = runner.run(model, inputs)["y"], trial.run(inputs)["y"]
            assert np.abs(found.astype(float) - expected.astype(float)).max() <= 1e-5


def test_graphs_and_rows_are_served_from_the_cache(
    model: Path, folder: Path, runner: OrtModelRunner, tmp_path: Path
) -> None:
    cut_all(model, folder, runner)

    ahead = prepared(folder, runner, tmp_path / "cache")

    assert ahead.model.cut is not None
    assert ahead.store is not None
    for path in (ahead.model.cut.dense.path, ahead.store.segment):
        assert path.is_relative_to(tmp_path / "cache")


def test_small_tables_stay_as_model_yaml_says_and_the_report_says_why(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    config = model.with_name("model.yaml")
    config.write_text("optimize: {min_table_bytes: 100000}\n")

    report = optimize_folder(OptimizeRequest(model, folder, config), runner)

    assert [(one.table, one.cut) for one in report.lookups] == [("items", False)]
    assert "min_table_bytes" in report.lookups[0].reason
    assert (folder / "model.yaml").read_bytes() == config.read_bytes()


def test_where_nothing_is_cut_the_version_is_the_graph_as_exported(
    model: Path, folder: Path, runner: OrtModelRunner, tmp_path: Path
) -> None:
    onnx.save(click_model(()), model)

    report = optimize_folder(OptimizeRequest(model, folder), runner)

    assert listed(folder) == ["manifest.json", "model.onnx", "report.html", "report.json"]
    assert (folder / "model.onnx").read_bytes() == model.read_bytes()
    assert (report.lookups, report.parity.cases) == ((), 0)
    assert verify_folder(folder, runner).errors == []
    assert prepared(folder, runner, tmp_path / "cache").store is None


def test_tables_beside_the_file_are_read_and_the_original_may_come_along(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    onnx.save(
        click_model(), model, save_as_external_data=True, location="w.bin", size_threshold=100
    )

    cut_all(model, folder, runner, keeps_original=True)

    assert sorted({*listed(folder)} - {*FILES}) == ["click.onnx", "w.bin"]
    found = verify_folder(folder, runner)
    assert found.errors == []
    assert found.parity is not None
    assert found.parity.cases > 0


def test_one_that_answers_differently_is_not_written(model: Path, folder: Path) -> None:
    class Other(OrtModelRunner):
        def run(
            self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, Array]
        ) -> dict[str, Array]:
            found = super().run(model, inputs)
            return {name: array.astype("<f4") + 0.001 for name, array in found.items()}

    with pytest.raises(InvalidInput, match="answers differently: 1 made-up rows: output 'y'"):
        cut_all(model, folder, Other())

    assert not folder.parent.exists()
    assert not folder.parent.parent.exists()  # folders that were made for it are gone again


@pytest.mark.parametrize("name", ["taken", "7"])
def test_what_is_there_is_not_touched(
    model: Path, tmp_path: Path, runner: OrtModelRunner, name: str
) -> None:
    place = tmp_path / "here" / name
    place.mkdir(parents=True)
    (place / "mine.txt").write_text("mine")

    with pytest.raises(Conflict, match="has something in it"):
        cut_all(model, place, runner)

    assert listed(tmp_path / "here") == [f"{name}/mine.txt"]


def test_an_empty_folder_is_taken(model: Path, folder: Path, runner: OrtModelRunner) -> None:
    folder.mkdir(parents=True)

    cut_all(model, folder, runner)

    assert listed(folder) == FILES


def test_a_writer_that_dies_leaves_nothing_that_looks_complete(
    model: Path, folder: Path, runner: OrtModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written before the manifest is in hidden folders that no reader looks into."""
    seen: list[list[str]] = []

    def dies(*_: object) -> str:
        seen.append([path.name[0] for path in folder.parent.iterdir()])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(optimized_folders, "html_report", dies)

    with pytest.raises(OSError, match="No space left"):
        cut_all(model, folder, runner)

    assert seen == [[".", "."]]
    assert not folder.parent.exists()


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ("optimize: {split: off}", InvalidInput, "optimize.split: off leaves nothing"),
        ("optimise: {}", InvalidInput, "optimise: unknown key"),
        ("user_inputs: [user]", InvalidInput, "user_inputs"),
        ("calibration: {y: {platt: [1, 0]}}", Unsupported, "calibration"),
    ],
)
def test_a_model_yaml_that_does_not_fit_is_refused(
    model: Path, folder: Path, runner: OrtModelRunner, config: str, kind: type, message: str
) -> None:
    path = model.with_name("model.yaml")
    path.write_text(config)

    with pytest.raises(kind, match=message):
        optimize_folder(OptimizeRequest(model, folder, path), runner)

    assert not folder.exists()


def test_files_that_are_not_there_are_named(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    with pytest.raises(NotFound, match=r"other\.onnx"):
        cut_all(model.with_name("other.onnx"), folder, runner)
    with pytest.raises(NotFound, match=r"none\.yaml"):
        cut_all(model, folder, runner, model_yaml=model.with_name("none.yaml"))


@pytest.mark.parametrize(
    ("place", "expected"),
    [("m/3", ("m", 3)), ("out", ("out", 1)), ("..odd/9", ("click", 9)), ("x y", ("click", 1))],
)
def test_a_folder_is_named_by_its_place(
    model: Path, tmp_path: Path, runner: OrtModelRunner, place: str, expected: tuple[str, int]
) -> None:
    folder = tmp_path / "places" / place

    cut_all(model, folder, runner)

    document = manifest.decode((folder / "manifest.json").read_bytes())
    assert (document.model, document.version) == expected
    assert verify_folder(folder, runner).errors == []


# --- what is refused when it is read ---------------------------------------------------------


def changed_plan(folder: Path, **changes: object) -> None:
    """Change the plan of a version, and take the manifest away, which would tell."""
    document = json.loads((folder / "plan.json").read_bytes())
    (folder / "plan.json").write_text(json.dumps({**document, **changes}))
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"inputs": []}, Unsupported, "does not say what the inputs are"),
        ({"tables": []}, InvalidInput, r"lookups\[0\].table: there is no table 0"),
        ({"lookups": []}, InvalidInput, "no lookup fills some columns of 'ab_rows'"),
        ({"pass_through": []}, InvalidInput, "'price' of the dense graph is neither a buffer nor"),
        ({"graphs": {"dense": "d.onnx"}}, NotFound, "plan.json names d.onnx, which is no file"),
    ],
)
def test_a_plan_that_does_not_fit_its_files_is_refused(
    model: Path, folder: Path, runner: OrtModelRunner, tmp_path: Path,
    changes: dict[str, object], kind: type[AnabranchError], message: str,
) -> None:  # fmt: skip
    cut_all(model, folder, runner)
    changed_plan(folder, **changes)

    with pytest.raises(kind, match=message):
        prepared(folder, runner, tmp_path / "cache")
    found = verify_folder(folder, runner)
    assert not found.ok


def test_a_segment_of_another_model_is_refused(
    model: Path, folder: Path, runner: OrtModelRunner, tmp_path: Path
) -> None:
    cut_all(model, folder, runner)
    other = tmp_path / "exported" / "other.onnx"
    onnx.save(click_model(rows=60), other)
    cut_all(other, folder.parent / "8", runner)
    shutil.copyfile(folder.parent / "8" / "tables/0000.seg", folder / "tables/0000.seg")
    (folder / "manifest.json").unlink()

    with pytest.raises(InvalidInput, match=r"table 'items' is another than in plan\.json"):
        prepared(folder, runner, tmp_path / "cache")


def test_verify_names_a_file_that_was_changed(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    cut_all(model, folder, runner)
    with (folder / "dense.onnx").open("ab") as file:
        file.write(b"x")

    found = verify_folder(folder, runner)

    assert not found.ok
    assert found.errors[0].startswith("dense.onnx: expected ")


def test_verify_finds_a_flipped_bit_in_rows_also_without_a_manifest(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    cut_all(model, folder, runner)
    (folder / "manifest.json").unlink()
    segment = folder / "tables/0000.seg"
    data = bytearray(segment.read_bytes())
    row = np.frombuffer(onnx_table(model)[3].tobytes(), np.uint8).tobytes()
    data[data.index(row)] ^= 1
    segment.write_bytes(data)

    found = verify_folder(folder, runner)

    assert not found.ok
    assert any("tables/0000.seg" in error for error in found.errors)


def test_verify_compares_with_the_original_and_finds_other_weights(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    cut_all(model, folder, runner, keeps_original=True)
    other = click_model()
    table = next(one for one in other.graph.initializer if one.name == "items")
    table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table) + np.float32(1), "items"))
    onnx.save(other, folder / "click.onnx")
    document = json.loads((folder / "plan.json").read_bytes())
    digest = hashlib.sha256((folder / "click.onnx").read_bytes()).hexdigest()
    source = {**document["source"], "sha256": digest}
    changed_plan(folder, source=source)

    found = verify_folder(folder, runner)

    assert found.parity is not None
    assert found.parity.max_abs_diff > 1
    assert "answers differently than the original" in found.errors[0]


def test_verify_refuses_an_original_that_the_plan_was_not_made_from(
    model: Path, folder: Path, runner: OrtModelRunner
) -> None:
    cut_all(model, folder, runner, keeps_original=True)
    onnx.save(click_model(rows=60), folder / "click.onnx")
    (folder / "manifest.json").unlink()

    found = verify_folder(folder, runner)

    assert found.errors == ["click.onnx is another file than the one that the plan was made from"]


def onnx_table(model: Path) -> NDArray[np.float32]:
    found = next(t for t in onnx.load(model).graph.initializer if t.name == "items")
    return numpy_helper.to_array(found)
