"""Publishing behind URLs: a real client of S3 against a store on loopback, and file systems that
keep less than they promise.
"""

import hashlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from anabranch_publish import Publisher, Rows, publish_version
from anabranch_publish.local_storage import LocalStorage
from anabranch_publish.storage import Storage, open_storage
from anabranch_testing.s3_servers import S3Server, s3_server
from anabranch_wire import delta, manifest
from anabranch_wire.errors import Conflict, InvalidInput, NotFound, Unsupported

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    pytest.importorskip("s3fs", reason="needs s3fs")
    pytest.importorskip("moto", reason="needs moto")
    with s3_server() as running:
        yield running


@pytest.fixture(params=["s3", "memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a model's folder in an empty repository."""
    name = secrets.token_hex(4)
    if request.param == "s3":
        return f"{request.getfixturevalue('store').url}/{name}/ctr"
    if request.param == "memory":
        return f"memory://{name}/ctr"
    return f"file://{tmp_path}/ctr"


@pytest.fixture
def model_onnx(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"onnx" * 1000)
    return path


def files(storage: Storage, folder: str) -> dict[str, bytes]:
    """Every file of a folder, by path."""
    with storage.fetch(folder) as local:
        return {
            path.relative_to(local).as_posix(): path.read_bytes()
            for path in local.rglob("*")
            if path.is_file()
        }


def rows(number: float) -> Any:
    return np.full((1, 2), number, np.float32)


def test_a_version_and_its_deltas(url: str, model_onnx: Path) -> None:
    with Publisher(url, version=1) as publisher:
        table = Rows(keys=np.arange(3), values=np.zeros((3, 2), np.float32))
        published = publisher.publish_version(model_onnx, tables={"t": table}, step=3)
        assert (published.version, str(published.path)) == (1, f"{url.removeprefix('file://')}/1")
        assert publisher.publish_version(model_onnx).version == 2
        with pytest.raises(Conflict, match="version 1 of ctr is taken"):
            publisher.publish_version(model_onnx, version=1)
        storage = open_storage(url)
        data = storage.read("1/manifest.json")
        assert data is not None
        assert manifest.identity(data) == published.identity
        found = files(storage, "1")
        assert set(found) == {"manifest.json", "model.onnx", "tables/0000.safetensors"}
        for listed in manifest.decode(data).files:
            assert hashlib.sha256(found[listed.path]).hexdigest() == listed.sha256

        for number in (1, 2):
            draft = publisher.delta(step=number)
            draft.upsert("t", [number], rows(number))
            assert draft.publish() == number
        assert publisher.newest().step == 2  # type: ignore[union-attr]
        assert publisher.compact() == 3
        document = publisher.newest()
        assert document is not None
        assert (document.sequence, document.replaces_from) == (3, 1)
        assert document.base.identity == published.identity
        found = files(storage, "1/deltas/00000003")
        assert set(found) == {"delta.json", f"{document.attempt}/0000.safetensors"}
        assert delta.decode(found["delta.json"]) == document

        with storage.fetch(f"1/deltas/00000003/{document.attempt}") as folder:
            merged = load_file(folder / "0000.safetensors")
        assert sorted(merged["keys"].tolist()) == [1, 2]
        assert publisher.prune(age_s=0) == [1, 2]
        assert storage.names("1/deltas") == {"00000003"}
        assert storage.names("1") >= {"deltas", "manifest.json", "model.onnx"}
        assert publisher.delta().publish() == 4


def test_a_document_is_created_once(url: str) -> None:
    storage = open_storage(url)
    if isinstance(storage, LocalStorage):
        storage.root.mkdir()
    storage.create("a.json", b"first")
    with pytest.raises(FileExistsError):
        storage.create("a.json", b"second")
    assert storage.read("a.json") == b"first"
    assert storage.read("b.json") is None
    assert storage.names("") == {"a.json"}
    assert storage.names("none") == frozenset()
    storage.remove("a.json")
    storage.remove("a.json")
    assert storage.names("") == frozenset()


def test_the_loser_takes_its_files_to_the_next_number(url: str, model_onnx: Path) -> None:
    publish_version(url, model_onnx, version=1)
    with Publisher(url, version=1) as publisher:
        storage = open_storage(url)
        lost = publisher.delta()
        lost.upsert("t", [1], rows(1))
        create = type(storage).create

        def overtaken(self: Any, path: str, data: bytes) -> None:
            patched.undo()
            with Publisher(url, version=1) as other:
                other.delta(step=9).publish()
            create(self, path, data)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(storage), "create", overtaken)
            with pytest.raises(Conflict, match="delta 1 of version 1 of ctr is taken"):
                lost.publish()
        assert lost.publish() == 2
        given_up = publisher.delta(step=3)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(storage), "create", overtaken)
            with pytest.raises(Conflict, match="delta 3 of version 1 of ctr is taken"):
                given_up.publish()

    assert [name for name in files(storage, "1/deltas/00000001")] == ["delta.json"]
    document = lost.published
    assert document is not None
    assert set(files(storage, "1/deltas/00000002")) == {
        "delta.json",
        f"{document.attempt}/0000.safetensors",
    }
    assert set(files(storage, "1/deltas/00000003")) == {"delta.json"}


def test_stale_attempts_are_told_by_their_age(url: str, model_onnx: Path) -> None:
    publish_version(url, model_onnx, version=1)
    storage = open_storage(url)
    storage.put(model_onnx, f"1/deltas/00000001/{'a' * 16}/0000.safetensors")
    with Publisher(url, version=1) as publisher:
        assert publisher.clean() == 0
        assert publisher.delta().publish() == 1
        time.sleep(1.1)  # times of objects are whole seconds
        assert publisher.clean(stale_s=1.0) == 1
    assert storage.read(f"1/deltas/00000001/{'a' * 16}/0000.safetensors") is None


def test_a_version_behind_a_url_has_a_manifest(model_onnx: Path) -> None:
    url = f"memory://{secrets.token_hex(4)}/ctr"
    with pytest.raises(NotFound, match="there is no version 1"):
        Publisher(url, version=1).delta().publish()
    open_storage(url).put(model_onnx, "1/model.onnx")
    with pytest.raises(NotFound, match=r"version 1 has no manifest.json: publish it with"):
        Publisher(url, version=1).delta().publish()


def test_a_version_that_is_being_published_is_taken(model_onnx: Path) -> None:
    url = f"memory://{secrets.token_hex(4)}/ctr"
    open_storage(url).create("1/.publishing", b"")
    with pytest.raises(Conflict, match=r"has not finished: if none is at work, remove memory://"):
        publish_version(url, model_onnx, version=1)
    assert publish_version(url, model_onnx).version == 2


def test_a_version_that_cannot_be_sent_leaves_nothing(
    model_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{secrets.token_hex(4)}/ctr"
    storage = open_storage(url)

    def refuse(self: Any, source: Path, path: str) -> None:
        raise OSError("no more room")

    with monkeypatch.context() as patched:
        patched.setattr(type(storage), "put", refuse)
        with pytest.raises(OSError, match="no more room"):
            publish_version(url, model_onnx)
        with pytest.raises(InvalidInput, match="step"):
            publish_version(url, model_onnx, step=-1)
    assert storage.names("") == frozenset()
    assert publish_version(url, model_onnx).version == 1


def test_a_lost_answer_publishes_once(model_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{secrets.token_hex(4)}/ctr"
    publish_version(url, model_onnx, version=1)
    system = fsspec.filesystem("memory")
    pipe_file = type(system).pipe_file

    def lose(self: Any, path: str, value: bytes, mode: str) -> None:
        pipe_file(self, path, value, mode=mode)
        if path.endswith("delta.json"):
            raise ConnectionResetError("gone before it answered")

    with monkeypatch.context() as patched, Publisher(url, version=1) as publisher:
        patched.setattr(type(system), "pipe_file", lose)
        draft = publisher.delta()
        assert draft.publish() == 1
        assert draft.publish() == 1
        assert publisher.delta().publish() == 2


def ignoring(pipe_file: Callable[..., None]) -> Callable[..., None]:
    def ignore(self: Any, path: str, value: bytes, mode: str) -> None:
        pipe_file(self, path, value, mode="overwrite")

    return ignore


def knowing_no_mode(pipe_file: Callable[..., None]) -> Callable[..., None]:
    def refuse(self: Any, path: str, value: bytes) -> None:
        pipe_file(self, path, value)

    return refuse


@pytest.mark.parametrize("kind", [ignoring, knowing_no_mode])
def test_a_file_system_that_replaces_files_is_refused(
    model_onnx: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Callable[..., None]]
) -> None:
    url = f"memory://{secrets.token_hex(4)}/ctr"
    publish_version(url, model_onnx, version=1)
    system = fsspec.filesystem("memory")
    monkeypatch.setattr(type(system), "pipe_file", kind(type(system).pipe_file))

    with Publisher(url, version=1) as publisher:
        with pytest.raises(Unsupported, match="this file system replaces a file although it was"):
            publisher.delta().publish()
        with pytest.raises(Unsupported, match="would replace each other's documents"):
            publisher.publish_version(model_onnx)

    assert set(files(open_storage(url), "")) == {"1/manifest.json", "1/model.onnx"}


def test_urls_that_nobody_knows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="Protocol not known: nowhere"):
        Publisher("nowhere://x/ctr", version=1)
    with pytest.raises(InvalidInput, match="model name"):
        Publisher("memory://x/-ctr", version=1)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(Unsupported, match=r"install anabranch-client\[fsspec\]"):
        Publisher("s3://x/ctr", version=1)


RACING = """
import sys, time
import numpy as np
from anabranch_publish import Publisher
from anabranch_wire.errors import Conflict
url, name, start, rounds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
lost = 0
with Publisher(url, version=1) as publisher:
    publisher.newest()
    time.sleep(max(0, start - time.time()))
    for step in range(rounds):
        draft = publisher.delta(step=name * 1000 + step)
        draft.upsert("t", [name], np.full((1, 2), step, np.float32))
        while True:
            try:
                print(draft.publish())
                break
            except Conflict:
                lost += 1
print(f"lost {lost}")
"""


def test_racing_publishers_in_a_store_leave_neither_gaps_nor_doubles(
    store: S3Server, model_onnx: Path
) -> None:
    url = f"{store.url}/{secrets.token_hex(4)}/ctr"
    publish_version(url, model_onnx, version=1)
    start, rounds = time.time() + 4.0, 6
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, url, str(name), str(start), str(rounds)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, **store.environ},
        )
        for name in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[0].split("lost") for process in racing]

    assert [process.returncode for process in racing] == [0, 0]
    numbers = sorted(int(word) for printed, _ in said for word in printed.split())
    assert numbers == list(range(1, 2 * rounds + 1))
    assert sum(int(lost) for _, lost in said) > 0, "they did race"
    with Publisher(url, version=1) as publisher:
        assert publisher.compact() == 2 * rounds + 1
    steps = set()
    for number in numbers:
        data = open_storage(url).read(f"1/deltas/{number:08}/delta.json")
        assert data is not None
        steps.add(delta.decode(data).step)
    assert steps == {name * 1000 + step for name in range(2) for step in range(rounds)}


def test_conditional_puts_are_asked_for_and_honoured(store: S3Server, model_onnx: Path) -> None:
    url = f"{store.url}/{secrets.token_hex(4)}/ctr"
    publish_version(url, model_onnx, version=1)
    store.asked.clear()

    with Publisher(url, version=1) as publisher:
        publisher.delta().publish()

    put = [
        (one.key.rpartition("/")[2][:6], one.status) for one in store.asked if one.method == "PUT"
    ]
    assert put == [(".probe", 200), (".probe", 412), ("delta.", 200)]
