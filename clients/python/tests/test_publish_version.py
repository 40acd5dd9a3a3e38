import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

import anabranch_publish
from anabranch_publish import PublishedVersion, Rows, publish_version
from anabranch_publish.staging import Staging
from anabranch_wire import errors, manifest
from anabranch_wire.errors import Conflict, InvalidInput, NotFound
from anabranch_wire.manifest import Manifest


@pytest.fixture
def model_onnx(tmp_path: Path) -> Path:
    path = tmp_path / "export" / "anything.onnx"
    path.parent.mkdir()
    path.write_bytes(b"onnx" * 50_000)
    return path


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    repository = tmp_path / "repository"
    repository.mkdir()
    return repository / "ctr"


def complete(folder: Path) -> Manifest:
    """The manifest of a version folder, after checking that it names just what is there."""
    found = manifest.decode((folder / "manifest.json").read_bytes())
    assert str(found.version) == folder.name
    assert found.model == folder.parent.name
    for file in found.files:
        data = (folder / file.path).read_bytes()
        assert len(data) == file.bytes
        assert hashlib.sha256(data).hexdigest() == file.sha256
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert there == {file.path for file in found.files} | {"manifest.json"}
    return found


def test_a_model_alone_becomes_version_one(model_dir: Path, model_onnx: Path) -> None:
    published = publish_version(model_dir, model_onnx)

    found = complete(model_dir / "1")
    data = (model_dir / "1/manifest.json").read_bytes()
    assert published == PublishedVersion(
        model="ctr",
        version=1,
        path=model_dir / "1",
        identity=manifest.identity(data),
        bytes=200_000,
    )
    assert found.model_file == "model.onnx"
    assert found.producer.startswith("anabranch-client ")
    assert [path.name for path in model_dir.iterdir()] == ["1"]


def test_everything_that_belongs_to_a_version_comes_along(
    tmp_path: Path, model_dir: Path, model_onnx: Path
) -> None:
    data = model_onnx.parent / "weights" / "w.bin"
    data.parent.mkdir()
    data.write_bytes(b"w")
    sources = {
        name: tmp_path / name
        for name in ("my.yaml", "a.npz", "b.json", "g.json", "i.parquet", "v.txt")
    }
    for path in sources.values():
        path.write_text(path.name)
    table = tmp_path / "t.safetensors"
    save_file({"keys": np.arange(3, dtype=np.uint64), "values": np.ones((3, 2), np.float16)}, table)
    rows = Rows(keys=np.array([-1, 0]), values=np.arange(8, dtype=np.float32).reshape(4, 2).T)

    publish_version(
        str(model_dir),
        str(model_onnx),
        version=42,
        external_data=["weights/w.bin"],
        model_yaml=sources["my.yaml"],
        tables={"../any name": rows, "second": table},
        warmup=[sources["a.npz"], sources["b.json"]],
        golden=[str(sources["g.json"])],
        items=[sources["i.parquet"]],
        vocabularies=[sources["v.txt"]],
        step=7,
        event_time=1764417540.5,
    )

    found = complete(model_dir / "42")
    assert [file.path for file in found.files] == [
        "model.onnx", "weights/w.bin", "model.yaml", "warmup/a.npz", "warmup/b.json",
        "golden/g.json", "items/i.parquet", "vocab/v.txt", "tables/0000.safetensors",
        "tables/0001.safetensors",
    ]  # fmt: skip
    assert (found.step, found.event_time) == (7, 1764417540.5)
    assert [(t.name, t.file, t.rows, t.dim, t.dtype, t.key_dtype) for t in found.tables] == [
        ("../any name", "tables/0000.safetensors", 2, 4, "f32", "int64"),
        ("second", "tables/0001.safetensors", 3, 2, "f16", "uint64"),
    ]
    written = load_file(model_dir / "42/tables/0000.safetensors")
    np.testing.assert_array_equal(written["keys"], rows.keys)
    np.testing.assert_array_equal(written["values"], rows.values)


def test_files_get_the_mode_that_the_umask_gives(model_dir: Path, model_onnx: Path) -> None:
    model_onnx.chmod(0o600)
    rows = Rows(keys=np.array([1]), values=np.ones((1, 1), np.float32))
    before = os.umask(0o027)
    try:
        publish_version(model_dir, model_onnx, tables={"t": rows})
    finally:
        os.umask(before)

    files = [path for path in (model_dir / "1").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}


def test_the_next_number_follows_the_highest(model_dir: Path, model_onnx: Path) -> None:
    for name in ("3", "10", "011", "99x", "notes"):
        (model_dir / name).mkdir(parents=True)

    assert publish_version(model_dir, model_onnx).version == 11


def test_a_taken_version_is_a_conflict_and_stays_as_it_is(
    model_dir: Path, model_onnx: Path
) -> None:
    publish_version(model_dir, model_onnx, version=5)
    before = (model_dir / "5/manifest.json").read_bytes()
    model_onnx.write_bytes(b"other")

    with pytest.raises(Conflict, match="version 5 of ctr is taken"):
        publish_version(model_dir, model_onnx, version=5)

    assert (model_dir / "5/manifest.json").read_bytes() == before
    complete(model_dir / "5")
    assert [path.name for path in model_dir.iterdir()] == ["5"]


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"version": 0}, InvalidInput, "expected 1 to 18 digits"),
        ({"external_data": ["../x"]}, NotFound, "no such file"),
        ({"external_data": ["../export/anything.onnx"]}, InvalidInput, "path '../export"),
        ({"external_data": ["model.onnx"]}, NotFound, "no such file"),
        ({"model_yaml": "none.yaml"}, NotFound, "none.yaml: no such file"),
        ({"warmup": ["a.txt"]}, InvalidInput, r"a.txt: warmup files end in .npz or .json"),
        ({"golden": ["a.npz"]}, InvalidInput, r"golden files end in .json"),
        ({"items": ["a.csv"]}, InvalidInput, r"items files end in .parquet"),
        ({"vocabularies": ["a.csv"]}, InvalidInput, r"vocab files end in .txt"),
        ({"tables": {"t": "none.safetensors"}}, NotFound, "none.safetensors: no such file"),
        ({"tables": {"t": "../export/anything.onnx"}}, InvalidInput, "'t': not safetensors"),
        ({"tables": {"": "t.safetensors"}}, InvalidInput, "expected 1 to 512 bytes"),
        ({"step": -1}, InvalidInput, "step: expected an integer"),
        ({"event_time": float("nan")}, InvalidInput, "event_time"),
    ],
)
def test_what_cannot_be_published_leaves_nothing_behind(
    model_dir: Path,
    model_onnx: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    kind: type[Exception],
    message: str,
) -> None:
    model_dir.mkdir()
    monkeypatch.chdir(model_onnx.parent)
    save_file({"keys": np.arange(1), "values": np.ones((1, 1), np.float32)}, "t.safetensors")

    with pytest.raises(kind, match=message):
        # Values of types that the function does not take are among the cases.
        publish_version(model_dir, model_onnx, **changes)  # type: ignore[arg-type]  # of many types

    assert list(model_dir.iterdir()) == []


def test_two_files_of_one_name_are_refused(
    tmp_path: Path, model_dir: Path, model_onnx: Path
) -> None:
    twins = [tmp_path / folder / "a.json" for folder in ("x", "y")]
    for path in twins:
        path.parent.mkdir()
        path.write_text("{}")

    with pytest.raises(InvalidInput, match=r"warmup/a.json: two files of this version"):
        publish_version(model_dir, model_onnx, warmup=twins)


def test_names_and_places_are_checked(tmp_path: Path, model_onnx: Path) -> None:
    with pytest.raises(InvalidInput, match="model name"):
        publish_version(tmp_path / "-ctr", model_onnx)
    with pytest.raises(NotFound, match="no such repository: make the folder first"):
        publish_version(tmp_path / "none" / "ctr", model_onnx)
    with pytest.raises(NotFound, match=r"none\.onnx: no such file"):
        publish_version(tmp_path / "ctr", tmp_path / "none.onnx")


KEYS: NDArray[np.generic] = np.arange(2)
VALUES: NDArray[np.generic] = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    "tensors",
    [
        {"keys": KEYS},
        {"values": VALUES},
        {"keys": KEYS.astype(np.int32), "values": VALUES},
        {"keys": KEYS, "values": VALUES.astype(np.float64)},
        {"keys": KEYS[:1], "values": VALUES},
        {"keys": KEYS.reshape(1, 2), "values": VALUES},
        {"keys": KEYS, "values": KEYS.astype(np.float32)},
        {"keys": KEYS, "values": np.ones((2, 0), np.float32)},
        {"keys": KEYS, "values": VALUES, "more": KEYS},
        {"keys": KEYS, "values": VALUES.astype(np.int8)},
    ],
)
def test_tables_of_another_form_are_refused(
    tmp_path: Path, model_dir: Path, model_onnx: Path, tensors: dict[str, NDArray[np.generic]]
) -> None:
    save_file(tensors, tmp_path / "t.safetensors")
    with pytest.raises(InvalidInput, match=r"table 't': expected keys \[n\] of I64 or U64"):
        publish_version(model_dir, model_onnx, tables={"t": tmp_path / "t.safetensors"})


def test_int8_tables_carry_scale_and_bias(
    tmp_path: Path, model_dir: Path, model_onnx: Path
) -> None:
    scale = np.ones(2, np.float16)
    tensors = {"keys": KEYS, "values": VALUES.astype(np.int8), "scale": scale, "bias": scale}
    save_file(tensors, tmp_path / "t.safetensors")

    publish_version(model_dir, model_onnx, tables={"t": tmp_path / "t.safetensors"})

    assert complete(model_dir / "1").tables[0].dtype == "int8"


def test_a_staging_that_lost_a_number_can_take_another(model_dir: Path, model_onnx: Path) -> None:
    model_dir.mkdir()
    with Staging(model_dir) as first, Staging(model_dir) as second:
        for staging in (first, second):
            staging.copy(model_onnx, "model.onnx")
        first.publish(1, "manifest.json", b"first")
        with pytest.raises(Conflict, match="version 1 of ctr is taken"):
            second.publish(1, "manifest.json", b"second")
        second.publish(2, "manifest.json", b"another")

    assert (model_dir / "1/manifest.json").read_bytes() == b"first"
    assert (model_dir / "2/manifest.json").read_bytes() == b"another"
    assert sorted(path.name for path in model_dir.iterdir()) == ["1", "2"]


def test_a_number_taken_meanwhile_is_passed_over(
    model_dir: Path, model_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = manifest.encode

    def overtaken(document: Manifest) -> bytes:
        if document.version < 3:
            (model_dir / str(document.version)).mkdir()
        return encode(document)

    monkeypatch.setattr(manifest, "encode", overtaken)

    with pytest.raises(Conflict, match="version 1 of ctr is taken"):
        publish_version(model_dir, model_onnx, version=1)
    assert publish_version(model_dir, model_onnx).version == 3
    complete(model_dir / "3")


def test_when_the_file_system_refuses_nothing_is_left(
    model_dir: Path, model_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(Path, "rename", refuse)

    with pytest.raises(OSError, match="quota"):
        publish_version(model_dir, model_onnx)

    assert not model_dir.exists()
    assert not list(model_dir.parent.iterdir())


PUBLISH = """
import sys, time
from anabranch_publish import publish_version
from anabranch_wire.errors import Conflict
model_dir, model_onnx, version, start = sys.argv[1:]
time.sleep(max(0, float(start) - time.time()))
try:
    print(publish_version(model_dir, model_onnx, version=int(version) or None).version)
except Conflict as error:
    print(error)
"""


def publishers(model_dir: Path, model_onnx: Path, version: int, count: int) -> list[str]:
    """What `count` processes print that publish at the same moment."""
    start = time.time() + 1.0
    model_dir.mkdir()
    running = []
    for index in range(count):
        own = model_onnx.with_name(f"{index}.onnx")
        own.write_bytes(bytes([index]) * 300_000)
        command = [
            sys.executable,
            "-c",
            PUBLISH,
            str(model_dir),
            str(own),
            str(version),
            str(start),
        ]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return sorted(process.communicate(timeout=60)[0].strip() for process in running)


def test_of_racing_publishers_of_one_version_one_wins(model_dir: Path, model_onnx: Path) -> None:
    printed = publishers(model_dir, model_onnx, version=7, count=4)

    assert printed == ["7"] + ["version 7 of ctr is taken"] * 3
    complete(model_dir / "7")
    assert [path.name for path in model_dir.iterdir()] == ["7"]


def test_racing_publishers_without_a_number_get_one_each(model_dir: Path, model_onnx: Path) -> None:
    printed = publishers(model_dir, model_onnx, version=0, count=4)

    assert printed == ["1", "2", "3", "4"]
    for name in printed:
        complete(model_dir / name)
    first_bytes = {(model_dir / name / "model.onnx").read_bytes()[0] for name in printed}
    assert first_bytes == {0, 1, 2, 3}


KILLED = """
import os, signal, sys
calls = int(sys.argv[3])
def dying(call):
    def step(*args, **kwargs):
        global calls
        if calls == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        calls -= 1
        return call(*args, **kwargs)
    return step
for name in ("mkdir", "open", "fsync", "rename", "fchmod"):
    setattr(os, name, dying(getattr(os, name)))
from anabranch_publish import publish_version
publish_version(sys.argv[1], sys.argv[2], version=1)
"""


def test_a_publisher_killed_at_any_step_publishes_all_or_nothing(
    tmp_path: Path, model_onnx: Path
) -> None:
    published = 0
    code, calls = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        model_dir = tmp_path / f"m{calls}"
        command = [sys.executable, "-c", KILLED, str(model_dir), str(model_onnx), str(calls)]
        code = subprocess.run(command, timeout=60).returncode
        if (model_dir / "1").exists() and any((model_dir / "1").iterdir()):
            complete(model_dir / "1")
            published += 1
        calls += 1
    assert code == 0
    assert published >= 2  # killed after the rename, and not killed


def test_a_check_sees_every_file_and_may_refuse_them(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"graph")
    (tmp_path / "a.json").write_bytes(b"{}")
    repository = tmp_path / "repository"
    repository.mkdir()
    seen: list[list[str]] = []

    def refuse(folder: Path) -> None:
        seen.append(sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*")))
        raise InvalidInput("not this one")

    with pytest.raises(InvalidInput, match="not this one"):
        publish_version(
            repository / "ctr",
            tmp_path / "model.onnx",
            warmup=[tmp_path / "a.json"],
            check=refuse,
        )

    assert seen == [["model.onnx", "warmup/a.json"]]
    assert not list(repository.iterdir()), "a model that was there for nothing is gone again"


def test_a_refused_version_leaves_what_is_published(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"graph")
    repository = tmp_path / "repository"
    repository.mkdir()
    publish_version(repository / "ctr", tmp_path / "model.onnx")

    with pytest.raises(NotFound):
        publish_version(repository / "ctr", tmp_path / "missing.onnx")

    assert [path.name for path in (repository / "ctr").iterdir()] == ["1"]


def test_the_errors_that_are_raised_can_be_caught_by_their_names_here() -> None:
    for name in (
        "AnabranchError",
        "Conflict",
        "Corrupt",
        "InvalidInput",
        "NotFound",
        "Unsupported",
    ):
        assert getattr(anabranch_publish, name) is getattr(errors, name)
        assert name in anabranch_publish.__all__
