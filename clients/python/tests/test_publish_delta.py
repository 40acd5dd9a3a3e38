import errno
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import weakref
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from anabranch_publish import Publisher, Rows, publish_version
from anabranch_publish import local_storage as local
from anabranch_wire import delta, manifest
from anabranch_wire.delta import Base, Delta
from anabranch_wire.errors import Conflict, Corrupt, InvalidInput, NotFound

MODEL = b"onnx" * 100


def version(folder: Path, number: int = 42) -> Path:
    """A published version with the outside table `t` of 2 numbers a row; returns the model's."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(MODEL)
    rows = Rows(keys=np.arange(3), values=np.zeros((3, 2), np.float32))
    publish_version(folder / "ctr", folder / "model.onnx", version=number, tables={"t": rows})
    return folder / "ctr"


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return version(tmp_path / "repository")


def complete(model_dir: Path, sequence: int, number: int = 42) -> tuple[Delta, Path]:
    """A published delta and the folder of its files, after checking that it names all of them."""
    folder = model_dir / str(number) / "deltas" / f"{sequence:08}"
    document = delta.decode((folder / "delta.json").read_bytes())
    attempt = folder / document.attempt
    assert (document.model, document.version, document.sequence) == ("ctr", number, sequence)
    data = (model_dir / str(number) / "manifest.json").read_bytes()
    assert document.base.identity == manifest.identity(data)
    for file in document.files:
        content = (attempt / file.path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)
    there = {p.relative_to(attempt).as_posix() for p in attempt.rglob("*") if p.is_file()}
    assert there == {file.path for file in document.files}
    for table in document.tables:
        with safe_open(attempt / table.file, framework="numpy") as tensors:
            assert tensors.get_slice("keys").get_shape() == [table.upserts]
            assert tensors.get_slice("values").get_shape() == [table.upserts, table.dim]
            assert tensors.get_slice("values").get_dtype().lower() == table.dtype
            names = set(tensors.keys())
            assert ("deleted" in names) == (table.deletes > 0)
    return document, attempt


def rows(*numbers: float) -> NDArray[np.float32]:
    return np.array([[number, number] for number in numbers], np.float32)


def test_a_delta_has_rows_weights_items_and_golden_requests(
    model_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "items.parquet").write_bytes(b"PAR1")
    golden = {"request": {"candidates": {"id": [1]}}, "scores": {"ctr": [0.5]}}
    (tmp_path / "g.json").write_text(json.dumps(golden))

    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta(
            step=7,
            event_time=1764417655.5,
            golden=[tmp_path / "g.json"],
            item_tables={"items": tmp_path / "items.parquet"},
        )
        draft.upsert("t", [5, -1], rows(5, 1))
        draft.upsert("u", np.array([2**64 - 1, 3], np.uint64), np.ones((2, 3), np.float16))
        draft.delete("t", [9])
        draft.dense({"w": np.ones((2, 2), np.float64), "b": np.zeros(3, np.int32)})
        assert draft.publish() == 1
        newest = publisher.newest()

    document, attempt = complete(model_dir, 1)
    assert newest == document == draft.published
    assert (document.step, document.event_time, document.replaces_from) == (7, 1764417655.5, 1)
    assert document.base.previous == 0
    assert document.producer.startswith("anabranch-client ")
    told = [(t.name, t.dim, t.dtype, t.key_dtype, t.upserts, t.deletes) for t in document.tables]
    assert told == [("t", 2, "f32", "int64", 2, 1), ("u", 3, "f16", "uint64", 2, 0)]
    assert document.dense is not None
    assert (document.dense.tensors, document.dense.complete) == (("w", "b"), False)
    assert [item.name for item in document.item_tables] == ["items"]
    assert document.golden == ("golden/0000.json",)
    table = load_file(attempt / "0000.safetensors")
    held = dict(zip(table["keys"].tolist(), table["values"].tolist(), strict=True))
    assert held == {5: [5.0, 5.0], -1: [1.0, 1.0]}
    assert table["deleted"].tolist() == [9]
    unsigned = load_file(attempt / "0001.safetensors")
    assert set(unsigned["keys"].tolist()) == {2**64 - 1, 3}
    weights = load_file(attempt / "dense.safetensors")
    np.testing.assert_array_equal(weights["w"], np.ones((2, 2), np.float64))
    np.testing.assert_array_equal(weights["b"], np.zeros(3, np.int32))


def test_of_what_is_told_twice_the_last_call_counts(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        draft.upsert("t", [1, 2, 1], rows(10, 20, 11))
        draft.delete("t", [2, 3])
        draft.upsert("t", [3], rows(30))
        draft.upsert("old", [1], rows(1))
        draft.dense({"old": np.ones((4, 2), np.float32)})
        draft.upsert("old", [2], rows(2))
        draft.publish()

    document, attempt = complete(model_dir, 1)
    table = load_file(attempt / "0000.safetensors")
    assert dict(zip(table["keys"].tolist(), table["values"][:, 0].tolist(), strict=True)) == {
        1: 11.0,
        3: 30.0,
    }
    assert table["deleted"].tolist() == [2]
    old = load_file(attempt / document.tables[1].file)
    assert old["keys"].tolist() == [2]


def test_bf16_comes_as_bits_or_as_ml_dtypes_and_mixed_rows_become_f32(model_dir: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.array([[0x3F80, 0x4000]], np.uint16)  # 1 and 2
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        draft.upsert("t", [1], bits, dtype="bf16")
        draft.upsert("t", [2], np.array([[3, 4]], ml_dtypes.bfloat16))
        draft.publish()
        mixed = publisher.delta()
        mixed.upsert("t", [1], bits, dtype="bf16")
        mixed.upsert("t", [2], np.array([[0.5, 0.1]], np.float16))
        mixed.publish()

    document, attempt = complete(model_dir, 1)
    assert document.tables[0].dtype == "bf16"
    written = (attempt / "0000.safetensors").read_bytes()
    assert written.endswith(np.array([0x3F80, 0x4000, 0x4040, 0x4080], np.uint16).tobytes())
    document, attempt = complete(model_dir, 2)
    assert document.tables[0].dtype == "f32"
    values = load_file(attempt / "0000.safetensors")["values"]
    np.testing.assert_array_equal(values, [[1, 2], [0.5, np.float16(0.1)]])


def test_what_was_told_is_copied(model_dir: Path) -> None:
    keys, values, weight = np.array([1]), rows(1), np.ones(2, np.float32)
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        draft.upsert("t", keys, values)
        draft.dense({"w": weight})
        for array in (keys, values, weight):
            array[...] = 9
        draft.publish()

    _, attempt = complete(model_dir, 1)
    assert load_file(attempt / "0000.safetensors")["values"].tolist() == [[1.0, 1.0]]
    assert load_file(attempt / "dense.safetensors")["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_numbers_that_are_not_finite_are_refused_with_table_and_key(
    model_dir: Path, bad: float, kind: str
) -> None:
    values = np.ones((3, 2), np.float32)
    values[1, 1] = bad
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        keys = np.array([1, 2**64 - 1, 2], np.uint64)
        rows_of_kind: NDArray[np.generic] = (values.view(np.uint32) >> 16).astype(np.uint16)
        if kind != "bf16":
            rows_of_kind = values.astype(kind.replace("f", "float"))
        with pytest.raises(InvalidInput, match=r"table 't': the row of key 18446744073709551615 h"):
            draft.upsert("t", keys, rows_of_kind, dtype="bf16" if kind == "bf16" else None)
        with pytest.raises(InvalidInput, match="weight 'w': has a NaN or an infinity at index 1"):
            draft.dense({"w": values})
    assert not (model_dir / "42/deltas").exists()


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        ([1.5], rows(1), "keys: expected integers in one axis, found float64"),
        ([[1]], rows(1), r"keys: expected integers in one axis, found int64 \[1, 1\]"),
        ([1, 2], rows(1), r"expected 2 rows for 2 keys, found \[1, 2\]"),
        ([1], np.ones(1, np.float32), r"expected 1 rows for 1 keys, found \[1\]"),
        ([1], np.ones((1, 0), np.float32), "expected 1 rows for 1 keys"),
        ([1], np.ones((1, 2)), "rows are float32, float16 or bf16, found F64: convert them"),
        ([1], np.ones((1, 2), np.complex64), "no file holds complex64"),
    ],
)
def test_rows_of_another_form_are_refused(
    model_dir: Path, keys: list[int], values: NDArray[np.generic], message: str
) -> None:
    draft = Publisher(model_dir, version=42).delta()
    with pytest.raises(InvalidInput, match=f"table 't': {message}"):
        draft.upsert("t", keys, values)


def test_rows_have_as_many_numbers_as_before_and_as_the_version_says(model_dir: Path) -> None:
    publisher = Publisher(model_dir, version=42)
    draft = publisher.delta()
    draft.upsert("t", [1], np.ones((1, 3), np.float32))
    with pytest.raises(InvalidInput, match=r"rows of 2 numbers, and before that of 3"):
        draft.upsert("t", [1], rows(1))
    with pytest.raises(InvalidInput, match=r"rows of 3 numbers, in the version they have 2"):
        draft.publish()
    unknown = publisher.delta()
    unknown.delete("v", [1])
    with pytest.raises(InvalidInput, match=r"table 'v': only deletes, and how many numbers"):
        unknown.publish()
    with pytest.raises(InvalidInput, match=r"'w': expected the bits of bf16 as uint16"):
        publisher.delta().upsert("w", [1], rows(1), dtype="bf16")
    assert not (model_dir / "42/deltas").exists()


@pytest.mark.parametrize(
    ("facts", "kind", "message"),
    [
        ({"step": -1}, InvalidInput, "step: expected an integer"),
        ({"event_time": float("nan")}, InvalidInput, "event_time"),
        ({"golden": ["none.json"]}, NotFound, "none.json: no such file"),
        ({"golden": ["model.onnx"]}, InvalidInput, "model.onnx: not JSON"),
        ({"item_tables": {"i": "none.parquet"}}, NotFound, "none.parquet: no such file"),
        ({"item_tables": {"i": "model.onnx"}}, InvalidInput, "item tables end in .parquet"),
        ({"item_tables": {"": "model.onnx"}}, InvalidInput, "expected 1 to 512 bytes"),
        ({"replaces_from": 2}, InvalidInput, "replaces_from 2: expected 1 to 1"),
        ({"attempt": "x"}, InvalidInput, "attempt 'x': expected 16 of 0-9 a-f"),
    ],
)
def test_what_cannot_be_published_leaves_nothing_behind(
    model_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, object],
    kind: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(model_dir.parent)
    with Publisher(model_dir, version=42) as publisher, pytest.raises(kind, match=message):
        publisher.delta(**facts).publish()  # type: ignore[arg-type]  # kinds it does not take

    assert [p for p in (model_dir / "42").rglob("*") if "deltas/" in str(p)] == []


def test_the_version_has_to_be_there(tmp_path: Path, model_dir: Path) -> None:
    with pytest.raises(NotFound, match="there is no version 43"):
        Publisher(model_dir, version=43).delta().publish()
    assert not (model_dir / "43").exists()
    with pytest.raises(InvalidInput, match="which version"):
        Publisher(model_dir).delta()
    with pytest.raises(InvalidInput, match="expected 1 to 18 digits"):
        Publisher(model_dir, version=0)
    (model_dir / "42").rename(model_dir / "44")
    with pytest.raises(InvalidInput, match="is of ctr 42, and lies in ctr 44"):
        Publisher(model_dir, version=44).delta().publish()


def test_a_version_without_a_manifest_is_named_by_its_files(model_dir: Path) -> None:
    (model_dir / "42/manifest.json").unlink()
    lines = b""
    for path in ("model.onnx", "tables/0000.safetensors"):
        digest = hashlib.sha256((model_dir / "42" / path).read_bytes()).hexdigest()
        lines += f"{path}\0{digest}\n".encode()
    with Publisher(model_dir, version=42) as publisher:
        for _ in range(2):
            publisher.delta().publish()
        newest = publisher.newest()

    assert newest is not None
    assert newest.base.identity == f"sha256:{hashlib.sha256(lines).hexdigest()}"
    assert newest.base.previous == 1


def test_the_next_number_follows_the_newest_of_anybody(model_dir: Path) -> None:
    first = Publisher(model_dir, version=42)
    second = Publisher(model_dir, version=42)
    assert [p.delta().publish() for p in (first, second, first)] == [1, 2, 3]
    (model_dir / "42/deltas/00000009" / ("a" * 16)).mkdir(parents=True)  # nothing came of it
    assert second.delta().publish() == 4
    document, _ = complete(model_dir, 4)
    assert (document.base.previous, document.replaces_from) == (3, 4)


@pytest.mark.parametrize("is_stray", [True, False])
def test_nothing_follows_the_last_number_and_that_is_said(model_dir: Path, is_stray: bool) -> None:
    with Publisher(model_dir, version=42) as publisher:
        publisher.delta().publish()
        found = (model_dir / "42/deltas/00000001/delta.json").read_bytes()
        if not is_stray:
            last_number = {"sequence": 99_999_999, "replaces_from": 99_999_999}
            base = Base(identity=delta.decode(found).base.identity, previous=99_999_998)
            found = delta.encode(
                msgspec.structs.replace(delta.decode(found), base=base, **last_number)
            )
        last = model_dir / "42/deltas/99999999"
        last.mkdir()
        (last / "delta.json").write_bytes(found)
        why = r"^delta 99999999 of version 42 of ctr has the last number .* remove /.*/99999999$"
        with pytest.raises(Conflict, match=why):
            publisher.delta().publish()
        assert [path.name for path in last.iterdir()] == ["delta.json"]
        shutil.rmtree(last)
        assert publisher.delta().publish() == 2


def test_deltas_of_another_base_are_not_gone_on_with(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        publisher.delta().publish()
        path = model_dir / "42/manifest.json"
        path.write_bytes(path.read_bytes() + b"\n")
        with pytest.raises(Conflict, match="it was replaced under its deltas"):
            publisher.delta().publish()


def taking(model_dir: Path, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """Another publisher takes the number just before the next document is created."""
    create = local.LocalStorage.create
    left = [times]

    def overtaken(storage: local.LocalStorage, path: str, data: bytes) -> None:
        if left[0]:
            left[0] -= 1
            with Publisher(model_dir, version=42) as other:
                monkeypatch.setattr(local.LocalStorage, "create", create)
                other.delta(step=1000).publish()
                monkeypatch.setattr(local.LocalStorage, "create", overtaken)
        create(storage, path, data)

    monkeypatch.setattr(local.LocalStorage, "create", overtaken)


def test_the_loser_is_told_the_number_and_may_take_the_next(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(model_dir, monkeypatch)
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta(step=1)
        draft.upsert("t", [1], rows(1))
        with pytest.raises(Conflict, match=r"delta 1 of version 42 of ctr is taken: publish\(\) a"):
            draft.publish()
        with pytest.raises(Conflict, match="what it publishes is settled"):
            draft.upsert("t", [2], rows(1))
        assert draft.publish() == 2
        assert draft.publish() == 2

    assert complete(model_dir, 1)[0].step == 1000
    assert complete(model_dir, 2)[0].step == 1
    assert len(list((model_dir / "42/deltas/00000001").iterdir())) == 2


def test_with_retries_it_takes_the_next_by_itself(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(model_dir, monkeypatch, times=2)
    with Publisher(model_dir, version=42) as publisher:
        assert publisher.delta().publish(retries=2) == 3


def test_a_draft_that_is_given_up_is_not_kept(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        draft.upsert("t", [1], np.ones((1, 2), np.float32))
        given_up = weakref.ref(draft)
        del draft
        assert given_up() is None

        draft = publisher.delta()
        draft.upsert("t", [1], np.ones((1, 3), np.float32))
        with pytest.raises(InvalidInput, match="rows of 3 numbers"):
            draft.publish()
        refused = weakref.ref(draft)
        del draft
        publisher.delta(step=2).publish()
        gc.collect()
        assert refused() is None


def test_a_loser_that_gives_up_leaves_nothing(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(model_dir, monkeypatch)
    with Publisher(model_dir, version=42) as publisher, pytest.raises(Conflict):
        publisher.delta().publish()
    assert len(list((model_dir / "42/deltas/00000001").iterdir())) == 2


def test_what_replaces_others_does_not_follow_one_that_it_does_not_know(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Publisher(model_dir, version=42) as publisher:
        publisher.delta().publish()
        known = publisher.delta(replaces_from=1)
        assert known.publish() == 2
        document, _ = complete(model_dir, 2)
        assert (document.replaces_from, document.base.previous) == (1, 1)
        late = publisher.delta(replaces_from=1)
        publisher.delta().publish()
        with pytest.raises(Conflict, match="delta 3 of version 42 of ctr is taken: this one repl"):
            late.publish(retries=3)
        racing = publisher.delta(replaces_from=2)
        taking(model_dir, monkeypatch)
        with pytest.raises(Conflict, match=r"delta 4 .* is taken: this one replaces"):
            racing.publish(retries=3)


def test_an_answer_that_is_lost_publishes_once(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = local.LocalStorage.settle
    fails = [True]

    def lose(storage: local.LocalStorage, path: str) -> None:
        if path.endswith("delta.json") and fails[0]:
            fails[0] = False
            raise OSError(errno.EIO, "lost")
        settle(storage, path)

    monkeypatch.setattr(local.LocalStorage, "settle", lose)
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        draft.upsert("t", [1], rows(1))
        with pytest.raises(OSError, match="lost"):
            draft.publish()
        assert draft.publish() == 1
        assert publisher.delta().publish() == 2

    complete(model_dir, 1)


def test_a_publisher_closed_after_a_lost_answer_leaves_the_delta_whole(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(storage: local.LocalStorage, path: str) -> None:
        if path.endswith("delta.json"):
            raise OSError(errno.EIO, "lost")

    with monkeypatch.context() as patched:
        patched.setattr(local.LocalStorage, "settle", lose)
        publisher = Publisher(model_dir, version=42)
        with pytest.raises(OSError, match="lost"):
            publisher.delta().publish()
    publisher.close()

    complete(model_dir, 1)


def test_an_attempt_that_is_known_again_is_published_once(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        assert publisher.delta(attempt="0123456789abcdef", step=5).publish() == 1
        assert publisher.delta().publish() == 2
    half = model_dir / "42/deltas/00000003" / "fedcba9876543210"
    half.mkdir(parents=True)
    (half / "0000.safetensors").write_bytes(b"half")
    with Publisher(model_dir, version=42) as restarted:
        again = restarted.delta(attempt="0123456789abcdef", step=5)
        assert again.publish() == 1
        killed = restarted.delta(attempt="fedcba9876543210")
        killed.upsert("t", [1], rows(1))
        assert killed.publish() == 3

    complete(model_dir, 3)


@pytest.mark.parametrize("missing", ["link", "link and renameat2"])
def test_file_systems_without_links_create_exclusively_too(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    if "renameat2" in missing:
        monkeypatch.setattr(local, "_rename_new", refuse)
    storage = local.LocalStorage(model_dir)
    storage.create("a.json", b"first")
    with pytest.raises(FileExistsError):
        storage.create("a.json", b"second")
    assert storage.read("a.json") == b"first"
    assert ("claim" in storage.names("")) == ("renameat2" in missing)
    assert not [name for name in storage.names("") if name.startswith(".a.json")]


def test_a_number_that_is_claimed_says_how_to_get_on(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(local, "_rename_new", refuse)
    claimed = model_dir / "42/deltas/00000001"
    claimed.mkdir(parents=True)
    (claimed / "claim").touch()
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        with pytest.raises(Conflict, match="has not finished: if none is at work, remove /"):
            draft.publish()
        (claimed / "claim").unlink()
        assert draft.publish() == 1


def test_stale_attempts_are_removed_and_no_others(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        publisher.delta().publish()
        complete(model_dir, 1)
        old, young = "a" * 16, "b" * 16
        for sequence in (1, 2):
            for attempt in (old, young):
                folder = model_dir / f"42/deltas/{sequence:08}" / attempt
                folder.mkdir(parents=True)
                (folder / "f").write_bytes(b"x")
                if attempt == old:
                    then = time.time() - 7 * 3600
                    for path in (folder / "f", folder):
                        os.utime(path, (then, then))
        winner = model_dir / "42/deltas/00000001" / complete(model_dir, 1)[0].attempt
        os.utime(winner, (1, 1))

        assert publisher.delta().publish() == 2  # takes away what is stale at its own number
        assert not (model_dir / "42/deltas/00000002" / old).exists()
        assert publisher.clean() == 1
        assert {p.name for p in (model_dir / "42/deltas/00000001").iterdir()} == {
            young,
            winner.name,
            "delta.json",
        }
        assert (model_dir / "42/deltas/00000002" / young).exists()


def test_what_a_publisher_is_at_work_on_is_never_stale(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(model_dir, monkeypatch)
    with Publisher(model_dir, version=42) as slow, Publisher(model_dir, version=42) as other:
        draft = slow.delta()
        with pytest.raises(Conflict):
            draft.publish()
        assert other.clean(stale_s=0) == 0
        assert draft.publish() == 2


def state(model_dir: Path, sequence: int) -> tuple[dict[int, float], set[int]]:
    document, attempt = complete(model_dir, sequence)
    held: dict[int, float] = {}
    deleted: set[int] = set()
    for table in document.tables:
        found = load_file(attempt / table.file)
        held |= dict(zip(found["keys"].tolist(), found["values"][:, 0].tolist(), strict=True))
        deleted |= set(found["deleted"].tolist()) if "deleted" in found else set()
    return held, deleted


def test_compacting_merges_all_of_them(model_dir: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_text(name)
    with Publisher(model_dir, version=42) as publisher:
        first = publisher.delta(step=1, item_tables={"i": tmp_path / "a.parquet"})
        first.upsert("t", [1, 2, 3], rows(1, 2, 3))
        first.dense({"w": np.ones(2, np.float32), "v": np.ones(1, np.float32)}, complete=True)
        first.publish()
        second = publisher.delta(step=2, event_time=5.0, item_tables={"i": tmp_path / "b.parquet"})
        second.upsert("t", [2, 4], np.array([[20, 20], [4, 4]], np.float16))
        second.delete("t", [3, 9])
        second.dense({"w": np.zeros(2, np.float32)})
        second.publish()
        assert publisher.compact() == 3
        assert publisher.compact(upto=3) == 4
        with pytest.raises(Conflict, match="delta 4 is the newest one, not 3"):
            publisher.compact(upto=3)

    for sequence in (3, 4):
        document, attempt = complete(model_dir, sequence)
        assert (document.replaces_from, document.step, document.event_time) == (1, 2, 5.0)
        assert document.tables[0].dtype == "f32"
        assert state(model_dir, sequence) == ({1: 1.0, 2: 20.0, 4: 4.0}, {3, 9})
        assert document.dense is not None
        assert document.dense.complete
        weights = load_file(attempt / "dense.safetensors")
        assert {n: w.tolist() for n, w in weights.items()} == {"w": [0.0, 0.0], "v": [1.0]}
        assert (attempt / document.item_tables[0].file).read_text() == "b"


def test_a_weight_set_whole_takes_the_place_of_earlier_rows(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        for step in range(3):
            draft = publisher.delta()
            if step == 1:
                draft.dense({"e": np.ones((9, 2), np.float32)})
            else:
                draft.upsert("e", [step, 7], rows(step, step))
            draft.publish()
        publisher.compact()

    assert state(model_dir, 4) == ({2: 2.0, 7: 2.0}, set())


def test_compacting_needs_whole_deltas(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        with pytest.raises(InvalidInput, match="the newest delta is 0; there is nothing to merge"):
            publisher.compact()
        for key in range(3):
            draft = publisher.delta()
            draft.upsert("t", [key], rows(key))
            draft.publish()
        assert publisher.compact(replaces_from=2) == 4
        document, attempt = complete(model_dir, 4)
        assert (document.replaces_from, state(model_dir, 4)[0]) == (2, {1: 1.0, 2: 2.0})
        table = attempt / document.tables[0].file
        data = bytearray(table.read_bytes())
        data[-1] ^= 1
        table.write_bytes(data)
        with pytest.raises(Corrupt, match=r"delta 4: 0000.safetensors: expected \d+ bytes with"):
            publisher.compact()
        table.unlink()
        with pytest.raises(Corrupt, match=r"delta 4: 0000.safetensors: is missing"):
            publisher.compact()
        (model_dir / "42/deltas/00000001/delta.json").unlink()
        with pytest.raises(NotFound, match="delta 1 of version 42 is not there"):
            publisher.compact()


def test_tables_that_lie_about_themselves_are_not_merged(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta()
        draft.upsert("t", [1], rows(1))
        draft.publish()
        _, attempt = complete(model_dir, 1)
        path = attempt / "0000.safetensors"
        junk = {"keys": np.arange(1), "values": np.ones((1, 3), np.float32)}
        save_file(junk, path)  # type: ignore[arg-type]  # its stub has arrays of one type
        data = path.read_bytes()
        listed = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        plain = json.loads((attempt.parent / "delta.json").read_text())
        plain["files"][0] |= listed
        (attempt.parent / "delta.json").write_text(json.dumps(plain))
        with pytest.raises(Corrupt, match=r"0000.safetensors: no values f32 \[1, 2\]"):
            publisher.compact()


def test_compacting_is_done_anew_where_others_publish_meanwhile(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Publisher(model_dir, version=42) as publisher:
        draft = publisher.delta(step=1)
        draft.upsert("t", [1], rows(1))
        draft.publish()
        taking(model_dir, monkeypatch, times=2)
        assert publisher.compact() == 4
        taking(model_dir, monkeypatch)
        with pytest.raises(Conflict, match="delta 5 of version 42 of ctr is taken"):
            publisher.compact(upto=4)
        taking(model_dir, monkeypatch, times=99)
        with pytest.raises(Conflict, match="5 times others published"):
            publisher.compact()

    document, _ = complete(model_dir, 4)
    assert (document.replaces_from, document.step) == (1, 1000)


def test_pruning_leaves_what_nothing_replaces(model_dir: Path) -> None:
    with Publisher(model_dir, version=42) as publisher:
        for _ in range(4):
            publisher.delta().publish()
        assert publisher.prune(age_s=0) == []
        publisher.compact(replaces_from=3)
        publisher.compact()
        publisher.delta().publish()
        assert publisher.prune() == []
        assert publisher.prune(keep=4, age_s=0) == [1]
        assert publisher.prune(keep=1, age_s=0) == [2, 3, 4]
        assert publisher.prune(age_s=0) == [5]
        assert sorted(p.name for p in (model_dir / "42/deltas").iterdir()) == [
            "00000006",
            "00000007",
        ]
        assert publisher.compact() == 8
    assert complete(model_dir, 8)[0].replaces_from == 1


def test_importing_the_publisher_needs_neither_torch_nor_fsspec() -> None:
    code = (
        "import sys, anabranch_publish; "
        "print(sorted({'torch', 'fsspec', 'ml_dtypes', 'grpc', 'pyarrow'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.strip() == "[]"
