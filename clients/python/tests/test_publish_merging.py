import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from anabranch_publish import Publisher, publish_version
from anabranch_publish.merging import RowChange, merge
from anabranch_publish.stored_numbers import Numbers
from anabranch_publish.tensor_files import read, write
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensor_files import Tensor

KEYS = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])
UPSERT = st.lists(st.tuples(KEYS, st.integers(-100, 100)), max_size=5)
CHANGE = st.tuples(st.just("upsert"), UPSERT) | st.tuples(
    st.just("delete"), st.lists(KEYS, max_size=4)
)
Change = tuple[str, list[tuple[int, int]]] | tuple[str, list[int]]


def plainly(changes: list[Change]) -> tuple[dict[int, float], set[int]]:
    """What changes come to, by dicts."""
    held: dict[int, float] = {}
    deleted: set[int] = set()
    for kind, entries in changes:
        for entry in entries:
            if kind == "upsert":
                assert isinstance(entry, tuple)
                held[entry[0]] = float(entry[1])
                deleted.discard(entry[0])
            else:
                assert isinstance(entry, int)
                held.pop(entry, None)
                deleted.add(entry)
    return held, deleted


def row_change(change: Change, dtype: str) -> RowChange:
    kind, entries = change
    if kind == "delete":
        return RowChange(np.array(entries, np.int64), "int64", None)
    keys = np.array([key for key, _ in entries], np.int64)  # type: ignore[misc]
    values = np.array([[v, -v] for _, v in entries], np.float32)  # type: ignore[misc]
    values = values.reshape(len(entries), 2)
    if dtype == "BF16":
        return RowChange(
            keys, "int64", Numbers("BF16", (values.view(np.uint32) >> 16).astype("u2"))
        )
    return RowChange(
        keys, "int64", Numbers(dtype, values.astype("<f4" if dtype == "F32" else "<f2"))
    )


@given(st.lists(CHANGE, min_size=1, max_size=8), st.data())
def test_merging_is_what_dicts_do(changes: list[Change], data: st.DataObject) -> None:
    types = [data.draw(st.sampled_from(["F32", "F16", "BF16"])) for _ in changes]
    merged = merge([row_change(c, t) for c, t in zip(changes, types, strict=True)], 2)

    with tempfile.TemporaryDirectory() as name:
        listed = write(Path(name), "t", merged.tensors())
        found = read(Path(name) / "t", "t")
        assert listed.bytes == (Path(name) / "t").stat().st_size
        keys = found["keys"].array.tolist()
        values = found["values"].array
        if found["values"].dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        held, deleted = plainly(changes)
        assert len(keys) == len(set(keys)) == merged.upserts
        assert dict(zip(keys, values[:, 0].tolist(), strict=True)) == held
        np.testing.assert_array_equal(values[:, 1], -values[:, 0].astype(np.float32))
        gone = found["deleted"].array.tolist() if "deleted" in found else []
        assert len(gone) == len(set(gone))
        assert set(gone) == deleted


@settings(max_examples=25)
@given(st.lists(st.lists(CHANGE, max_size=4), min_size=1, max_size=6), st.integers(1, 6))
def test_a_compacted_delta_is_what_dicts_make_of_all(
    published: list[list[Change]], first: int
) -> None:
    first = min(first, len(published))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "m.onnx").write_bytes(b"onnx")
        model_dir = Path(name) / "ctr"
        publish_version(model_dir, Path(name) / "m.onnx", version=1)
        with Publisher(model_dir, version=1) as publisher:
            for changes in published:
                draft = publisher.delta()
                draft.upsert("t", [], np.empty((0, 2), np.float32))
                for change in changes:
                    one = row_change(change, "F32")
                    if one.rows is None:
                        draft.delete("t", one.keys)
                    else:
                        draft.upsert("t", one.keys, one.rows.array)
                draft.publish()
            sequence = publisher.compact(replaces_from=first)
            document = publisher.newest()

        assert document is not None
        assert (sequence, document.replaces_from) == (len(published) + 1, first)
        (path,) = (model_dir / "1/deltas" / f"{sequence:08}" / document.attempt).iterdir()
        found = load_file(path)
        held, deleted = plainly([c for changes in published[first - 1 :] for c in changes])
        keys, values = found["keys"].tolist(), found["values"][:, 0].tolist()
        assert dict(zip(keys, values, strict=True)) == held
        assert set(found["deleted"].tolist() if "deleted" in found else []) == deleted


def test_many_rows_are_merged_in_blocks(tmp_path: Path) -> None:
    count = 200_000
    first = RowChange(np.arange(count), "int64", Numbers("F16", np.ones((count, 2), np.float16)))
    second = RowChange(
        np.arange(0, count, 2), "int64", Numbers("F32", np.full((count // 2, 2), 2, np.float32))
    )

    write(tmp_path, "t.safetensors", merge([first, second], 2).tensors())

    found = load_file(tmp_path / "t.safetensors")
    order = np.argsort(found["keys"])
    np.testing.assert_array_equal(found["keys"][order], np.arange(count))
    np.testing.assert_array_equal(found["values"][order, 1], np.where(np.arange(count) % 2, 1, 2))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data.replace(b"F32", b"F99"),
        lambda data: data.replace(b'"F32"', b'"F8_E4M3"').replace(b"[0,16]", b"[0,4]")[:-12],
    ],
)
def test_files_that_are_no_tensors_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    write(tmp_path, "t", {"x": Tensor("F32", (4,), (np.ones(4, np.float32),))})
    path = tmp_path / "t"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidInput, match=r"^about: "):
        read(path, "about")
