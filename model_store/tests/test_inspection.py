from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.inspection import find_rows, inspect_model
from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_runtime.store import SegmentBuilder
from anabranch_testing.graphs import scale_model
from anabranch_wire.errors import Corrupt, InvalidInput, NotFound

KEYS = np.array([5, -1, 2**62], np.int64)
VALUES = np.array([[3, 4], [0, 1], [0.5, 0]], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    scale_model(tmp_path)
    (tmp_path / "model.yaml").write_text("tables: {t: {alias: [also]}}")
    for step in (10, 20):
        publish_version(
            tmp_path / "m", tmp_path / "model.onnx", model_yaml=tmp_path / "model.yaml",
            tables={"t": Rows(KEYS, VALUES * step)}, step=step, event_time=5.5,
        )  # fmt: skip
    return tmp_path / "m"


def test_a_model_folder_shows_all_versions_newest_first(model: Path) -> None:
    (model / "serving.yaml").write_text("labels: {stable: 1}\nversions: {latest: 2}")
    facts = inspect_model(model)
    assert (facts.name, facts.deployment.labels) == ("m", {"stable": 1})
    assert [(one.version, one.step, one.event_time) for one in facts.versions] == [
        (2, 20, 5.5),
        (1, 10, 5.5),
    ]
    (table,) = facts.versions[0].tables
    assert (table.name, table.rows, table.dim, table.dtype, table.keys) == (
        "t", 3, 2, "f32", "hashed",
    )  # fmt: skip


def test_a_version_folder_shows_that_version(model: Path) -> None:
    assert [one.version for one in inspect_model(model / "1").versions] == [1]


def test_what_cannot_be_read_is_said_beside_the_rest(model: Path) -> None:
    (model / "1" / "manifest.json").write_text("{")
    (model / "2" / "tables" / "0000.safetensors").write_bytes(b"damaged")
    newest, oldest = inspect_model(model).versions
    assert newest.step == 20
    assert newest.error is not None
    assert newest.error.startswith("tables/0000.safetensors: ")
    assert oldest.error is not None
    assert oldest.error.startswith("manifest.json: not JSON")


def test_a_folder_without_versions_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no version in it"):
        inspect_model(tmp_path)
    with pytest.raises(NotFound, match="no such folder"):
        inspect_model(tmp_path / "gone")


@pytest.mark.parametrize("name", ["t", "also"])
def test_rows_come_in_the_order_of_the_keys(model: Path, name: str) -> None:
    found = find_rows(model / "1", name, [-1, 4, 5, 2**64 - 1])
    assert [row.key for row in found] == [-1, 4, 5, 2**64 - 1]
    values = [None if row.values is None else row.values.tolist() for row in found]
    assert values == [[0, 10], None, [30, 40], [0, 10]]  # the last key has the bits of -1


def test_a_model_folder_means_its_newest_version(model: Path) -> None:
    (row,) = find_rows(model, "t", [5])
    assert row.values is not None
    assert row.values.tolist() == [60, 80]


def test_a_table_that_is_not_there_is_not_found(model: Path) -> None:
    with pytest.raises(NotFound, match="version 2 has no table file for 'u'; it has 't'"):
        find_rows(model, "u", [1])


@pytest.mark.parametrize("row_type", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("keys", ["hashed", "dense_id"])
def test_rows_of_a_segment_are_found_too(tmp_path: Path, row_type: str, keys: str) -> None:
    folder = tmp_path / "m" / "1" / "tables"
    folder.mkdir(parents=True)
    scale_model(tmp_path / "m" / "1")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((100, 5)).astype(np.float32)
    ids = None if keys == "dense_id" else np.arange(100) * 7 - 300
    with SegmentBuilder(folder, "a.seg") as builder:
        for name in ("first", "second"):
            table = builder.table(name, 5, row_type=row_type, keys=keys, rows=100)  # type: ignore[arg-type]  # to be refused, or a stand-in
            table.add(ids, values if name == "second" else values * 0)
        builder.finish()
    wanted = [3, 99] if ids is None else [int(ids[3]), int(ids[99])]
    found = find_rows(tmp_path / "m" / "1", "second", wanted)
    for row, at in zip(found, (3, 99), strict=True):
        assert row.values is not None
        budget = {"f32": 0, "f16": 2e-3, "bf16": 2e-2, "int8": 2e-2}[row_type]
        assert np.abs(row.values - values[at]).max() <= budget


def test_a_file_that_is_no_segment_is_corrupt(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "1" / "tables"
    folder.mkdir(parents=True)
    scale_model(tmp_path / "m" / "1")
    (folder / "a.seg").write_bytes(bytes(5000))
    with pytest.raises((Corrupt, InvalidInput)):
        find_rows(tmp_path / "m", "a", [1])
