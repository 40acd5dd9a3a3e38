"""What the publisher writes is what the server reads."""

from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.deltas.delta_files import read_files
from anabranch_model_store.deltas.delta_folders import check_base, read_delta
from anabranch_model_store.deltas.delta_rows import changed_rows, changed_weights
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.version_files import verify_version
from anabranch_publish import Publisher, Rows, publish_version
from anabranch_wire.snapshots import Snapshot

SNAPSHOT = Snapshot("ctr", 1)
HELD = dict[str, tuple[dict[int, list[float]], set[int]]]


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    table = Rows(keys=np.arange(3), values=np.zeros((3, 2), np.float32))
    publish_version(tmp_path / "ctr", tmp_path / "m.onnx", version=1, tables={"t": table})
    return tmp_path / "ctr"


def read(folder: Path, sequence: int) -> tuple[HELD, dict[str, list[float]]]:
    """Rows and deletes by table, and weights, as the server reads them."""
    document = read_delta(folder, sequence)
    assert document is not None
    check_base(document, SNAPSHOT, verify_version(folder, SNAPSHOT).identity)
    files = read_files(LocalOrigin().attempt(folder, document), document)
    found: HELD = {}
    for table in document.tables:
        rows = changed_rows(files, table)
        held = dict(zip(rows.keys.tolist(), rows.values.tolist(), strict=True))
        found[table.name] = (held, set(rows.deleted.tolist()))
    return found, {name: weight.tolist() for name, weight in changed_weights(files).items()}


@pytest.mark.parametrize("has_manifest", [True, False])
def test_deltas_are_read_as_they_were_told(model_dir: Path, has_manifest: bool) -> None:
    if not has_manifest:
        (model_dir / "1/manifest.json").unlink()
    with Publisher(model_dir, version=1) as publisher:
        first = publisher.delta()
        first.upsert("t", [3, -1], np.array([[1, 2], [3, 4]], np.float16))
        first.delete("t", [0, 1])
        unsigned = np.array([2**64 - 1], np.uint64)
        first.upsert("u", unsigned, np.array([[0x3F80]], np.uint16), dtype="bf16")
        first.dense({"w": np.array([0.5, 0.25], np.float32)})
        first.publish()
        second = publisher.delta()
        second.upsert("t", [0], np.array([[5, 6]], np.float32))
        second.delete("t", [3])
        second.delete("u", unsigned)
        second.upsert("u", np.array([7], np.uint64), np.array([[9]], np.float32))
        second.dense({"v": np.array([1], np.float64)})
        second.publish()
        publisher.compact()

    folder = model_dir / "1"
    assert read(folder, 1) == (
        {"t": ({3: [1, 2], -1: [3, 4]}, {0, 1}), "u": ({-1: [1]}, set())},
        {"w": [0.5, 0.25]},
    )
    assert read(folder, 2) == ({"t": ({0: [5, 6]}, {3}), "u": ({7: [9]}, {-1})}, {"v": [1]})
    assert read(folder, 3) == (
        {"t": ({-1: [3, 4], 0: [5, 6]}, {1, 3}), "u": ({7: [9]}, {-1})},
        {"w": [0.5, 0.25], "v": [1]},
    )


def test_a_delta_of_deletes_alone_has_its_tensors(model_dir: Path) -> None:
    with Publisher(model_dir, version=1) as publisher:
        draft = publisher.delta()
        draft.delete("t", [1])
        draft.publish()

    assert read(model_dir / "1", 1) == ({"t": ({}, {1})}, {})
