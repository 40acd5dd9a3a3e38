"""Files of versions and deltas fetched from a real S3 server: whole, resumed, checked, bounded."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fsspec
import numpy as np
import pytest

from anabranch_model_store.sources.downloads import Download, Downloads
from anabranch_model_store.sources.fetched import Fetched
from anabranch_model_store.sources.remote_folders import RemoteFolder
from anabranch_model_store.sources.remote_origin import RemoteOrigin
from anabranch_runtime.store import SegmentBuilder
from anabranch_testing.s3_servers import S3Server, s3_server
from anabranch_wire import delta, manifest
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import InvalidInput, Unavailable, Unproven

BLOCK = 1 << 16


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> Iterator["Store"]:
    server.come()
    server.chunk_s = 0.0
    yield Store(server, request.node.name.partition("[")[0])
    server.come()


class Store:
    """One prefix of the bucket."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self.server = server
        self.url = f"{server.url}/{prefix}"
        self.files = fsspec.filesystem("s3", skip_instance_cache=True)
        server.asked.clear()

    def put(self, path: str, data: bytes) -> ListedFile:
        self.files.pipe_file(f"{self.url}/{path}", data)
        name = path.rpartition("/")[2]
        return ListedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    def downloads(self) -> Downloads:
        return Downloads(RemoteFolder(self.url, {}), BLOCK, 4)


def wanted(file: ListedFile, folder: Path) -> Download:
    return Download(file.path, folder / file.path, file.bytes, file.sha256)


def test_files_come_in_parallel_ranges_and_stay(store: Store, tmp_path: Path) -> None:
    data = {"a.bin": os.urandom(5 * BLOCK + 7), "b.bin": b"", "c.bin": os.urandom(BLOCK)}
    files = [wanted(store.put(name, content), tmp_path) for name, content in data.items()]
    said: list[tuple[int, int]] = []

    store.downloads().run(files, lambda done, total: said.append((done, total)))

    assert {name: (tmp_path / name).read_bytes() for name in data} == data
    assert said[0][0] == 0
    assert said[-1] == (sum(map(len, data.values())),) * 2
    assert [done for done, _ in said] == sorted(done for done, _ in said)
    assert len({one.range for one in store.server.asked if one.key.endswith("a.bin")}) >= 6
    store.server.asked.clear()
    store.downloads().run(files, lambda done, total: None)
    assert store.server.got() == 0
    assert not list(tmp_path.glob("*.part"))


def test_a_download_that_was_killed_goes_on_where_it_was(store: Store, tmp_path: Path) -> None:
    data = os.urandom(40 * BLOCK)
    file = wanted(store.put("big.bin", data), tmp_path)
    store.server.chunk_s = 0.05
    code = (
        "from pathlib import Path\n"
        "from anabranch_model_store.sources.downloads import Download, Downloads\n"
        "from anabranch_model_store.sources.remote_folders import RemoteFolder\n"
        f"file = Download('big.bin', Path({str(file.path)!r}), {file.bytes}, {file.sha256!r})\n"
        f"downloads = Downloads(RemoteFolder({store.url!r}, {{}}), {BLOCK}, 4)\n"
        "downloads.run([file], lambda done, total: None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        end = time.monotonic() + 60.0
        while not (file.part.is_file() and file.part.stat().st_size >= 12 * BLOCK):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    there = file.part.stat().st_size
    assert 0 < there < len(data)
    store.server.chunk_s = 0.0
    time.sleep(0.5)  # what was under way arrives nowhere
    store.server.asked.clear()

    store.downloads().run([file], lambda done, total: None)

    assert file.path.read_bytes() == data
    assert store.server.got() == len(data) - there


def test_what_was_left_wrong_is_fetched_anew(store: Store, tmp_path: Path) -> None:
    data = os.urandom(3 * BLOCK)
    file = wanted(store.put("a.bin", data), tmp_path)
    for left in (b"\0" * BLOCK, b"\0" * len(data), b"\0" * (len(data) + 1)):
        file.part.write_bytes(left)
        store.downloads().run([file], lambda done, total: None)
        assert file.path.read_bytes() == data
        file.path.unlink()
    file.path.write_bytes(b"damaged" + data[7:])
    store.downloads().run([file], lambda done, total: None)
    assert file.path.read_bytes() == data


def test_another_object_than_was_published_is_not_taken(store: Store, tmp_path: Path) -> None:
    file = wanted(store.put("a.bin", b"published"), tmp_path)
    store.put("a.bin", b"forged!!!")
    with pytest.raises(Unproven, match=r"a\.bin: expected sha256 .*changed after it was published"):
        store.downloads().run([file], lambda done, total: None)
    store.put("a.bin", b"short")
    with pytest.raises(Unproven, match=r"a\.bin: expected 9 bytes, found 5"):
        store.downloads().run([file], lambda done, total: None)
    store.files.rm(f"{store.url}/a.bin")
    with pytest.raises(Unproven, match=r"a\.bin: missing; expected 9 bytes"):
        store.downloads().run([file], lambda done, total: None)
    assert not list(tmp_path.iterdir())


def test_what_a_store_sent_wrong_for_a_while_is_taken_when_it_is_right(
    store: Store, tmp_path: Path
) -> None:
    data = os.urandom(3 * BLOCK)
    file = wanted(store.put("a.bin", data), tmp_path)
    for sent in (None, data[: 2 * BLOCK], data[:-1] + bytes([data[-1] ^ 1])):
        if sent is None:
            store.files.rm(f"{store.url}/a.bin")
        else:
            store.put("a.bin", sent)
        for _ in range(2):
            with pytest.raises(Unproven, match=r"^a\.bin: "):
                store.downloads().run([file], lambda done, total: None)
    store.put("a.bin", data)
    store.downloads().run([file], lambda done, total: None)
    assert file.path.read_bytes() == data


def test_a_segment_is_proven_by_its_own_checksums(store: Store, tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    with SegmentBuilder(tmp_path / "built", "t.seg") as builder:
        builder.table("t", 4, row_type="f32", keys="dense_id", rows=1000).add(
            None, np.ones((1000, 4), np.float32)
        )
        builder.finish()
    data = (tmp_path / "built" / "t.seg").read_bytes()
    flipped = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]
    file = Download("t.seg", tmp_path / "t.seg", len(data), None)
    store.put("t.seg", flipped)
    with pytest.raises(Unproven, match=r"t\.seg: expected a segment that is whole, found another"):
        store.downloads().run([file], lambda done, total: None)
    assert not file.path.exists()

    store.put("t.seg", data)
    store.downloads().run([file], lambda done, total: None)
    assert file.path.read_bytes() == data
    file.path.write_bytes(flipped)
    store.downloads().run([file], lambda done, total: None)
    assert file.path.read_bytes() == data


def test_a_store_that_goes_away_is_unavailable_and_what_came_stays(
    store: Store, tmp_path: Path
) -> None:
    data = os.urandom(6 * BLOCK)
    file = wanted(store.put("a.bin", data), tmp_path)

    def go(done: int, total: int) -> None:
        if done >= BLOCK:
            store.server.go()

    with pytest.raises(Unavailable):
        Downloads(RemoteFolder(store.url, {}), BLOCK, 1).run([file], go)
    there = file.part.stat().st_size
    store.server.come()
    store.server.asked.clear()
    store.downloads().run([file], lambda done, total: None)
    assert file.path.read_bytes() == data
    assert store.server.got() == len(data) - there


def test_a_number_in_a_refusal_is_no_end_of_a_file() -> None:
    # 416 is what HTTP says of ranges behind the end; here it is a part of a port.
    options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:41601"},
    }
    folder = RemoteFolder("s3://models/416", options)
    with pytest.raises(Unavailable, match="41601"):
        folder.read_range("a.bin", 0, 10)


def test_a_range_of_an_empty_file_is_empty(store: Store) -> None:
    store.put("empty.bin", b"")
    assert RemoteFolder(store.url, {}).read_range("empty.bin", 0, 10) == b""


def test_a_disk_without_room_is_told_with_its_numbers(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wanted(store.put("a.bin", b"x" * 1000), tmp_path / "not" / "there" / "yet")

    class Usage(NamedTuple):
        free: int = 999

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage())
    with pytest.raises(Unavailable, match="1000 bytes are to be fetched, and its disk has 999"):
        store.downloads().run([file], lambda done, total: None)
    assert store.server.got() == 0


def test_a_disk_that_is_full_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    file = wanted(store.put("a.bin", b"x" * 1000), Path("/dev/full/below"))
    monkeypatch.setattr(Download, "part", property(lambda self: Path("/dev/full")))
    monkeypatch.setattr(Path, "mkdir", lambda self, *args, **told: None)
    with pytest.raises(Unavailable, match="cache folder: its disk is full"):
        store.downloads().run([file], lambda done, total: None)


# --- the cache -----------------------------------------------------------------------------------


def identity(number: int) -> str:
    return f"sha256:{number:064x}"


def entries(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_was_used_longest_ago_is_cleared_but_nothing_in_use(
    store: Store, tmp_path: Path
) -> None:
    fetched = Fetched(tmp_path / "fetched", 2500, store.downloads())
    places = []
    for number in (1, 2, 3):
        file = store.put(f"v{number}/a.bin", bytes([number]) * 1000)
        place = fetched.version(identity(number), f"v{number}", [file], lambda *told: None)
        os.utime(place, (number, number))
        places.append(place)
    assert [place.exists() for place in places] == [False, True, True]

    fetched.prune([places[1] / "a.bin"])
    file = store.put("v4/d.bin", b"4" * 2000)
    delta_place = fetched.attempt(identity(3), "00000001-ab", "v4", [file])

    assert [place.exists() for place in places] == [False, True, False]
    assert (delta_place / "d.bin").read_bytes() == b"4" * 2000
    assert not places[0].parent.exists()
    store.server.asked.clear()
    assert fetched.version(identity(2), "v2", [_listed(b"\2" * 1000)], lambda *told: None)
    assert store.server.got() == 0


def test_few_deltas_stay_however_small_they_are(store: Store, tmp_path: Path) -> None:
    fetched = Fetched(tmp_path / "fetched", 1 << 30, store.downloads())
    file = store.put("v1/a.bin", b"a")
    version = fetched.version(identity(1), "v1", [file], lambda *told: None)
    deltas = version.parent / "deltas"
    for number in range(300):
        place = deltas / f"{number:08}-ab"
        place.mkdir(parents=True)
        os.utime(place, (1000 + number, 1000 + number))
    os.utime(version, (1, 1))

    fetched.prune([deltas / "00000003-ab" / "a.bin"])

    left = sorted(int(place.name[:8]) for place in deltas.iterdir())
    assert left == [3, *range(44, 300)]
    assert version.exists()


def test_what_another_process_has_used_lately_stays(store: Store, tmp_path: Path) -> None:
    fetched = Fetched(tmp_path / "fetched", 2000, store.downloads())
    places = []
    for number in (1, 2):
        file = store.put(f"v{number}/a.bin", bytes([number]) * 1000)
        places.append(fetched.version(identity(number), f"v{number}", [file], lambda *told: None))
        os.utime(places[-1], (number, number))

    Fetched(tmp_path / "fetched", 0, store.downloads()).prune([], since=2.0)

    assert [place.exists() for place in places] == [False, True]


def _listed(data: bytes) -> ListedFile:
    return ListedFile(path="a.bin", bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def test_an_origin_has_the_files_that_the_skeleton_names(store: Store, tmp_path: Path) -> None:
    model = store.put("ctr/7/model.onnx", b"graph")
    rows = store.put(f"ctr/7/deltas/00000003/{'a' * 16}/rows.safetensors", b"rows")
    document = manifest.encode(
        manifest.Manifest(
            format=1, kind="version", model="ctr", version=7, producer="test", created=1.0,
            model_file="model.onnx", files=(model,),
        )
    )  # fmt: skip
    skeleton = tmp_path / "mirror"
    (skeleton / "ctr" / "7").mkdir(parents=True)
    (skeleton / "ctr" / "7" / "manifest.json").write_bytes(document)
    published = delta.Delta(
        format=1, kind="delta", model="ctr", version=7, sequence=3, replaces_from=3,
        base=delta.Base(identity=manifest.identity(document), previous=2), attempt="a" * 16,
        producer="test", created=2.0, files=(rows,),
    )  # fmt: skip
    origin = RemoteOrigin(skeleton, Fetched(tmp_path / "fetched", 1 << 20, store.downloads()))

    version = origin.version(skeleton / "ctr" / "7", lambda done, total: None)
    attempt = origin.attempt(skeleton / "ctr" / "7", published)

    assert entries(version) == {"manifest.json", "model.onnx"}
    assert (version / "manifest.json").read_bytes() == document
    assert (attempt / "rows.safetensors").read_bytes() == b"rows"
    store.server.asked.clear()
    assert origin.version(skeleton / "ctr" / "7", lambda done, total: None) == version
    assert origin.attempt(skeleton / "ctr" / "7", published) == attempt
    assert store.server.asked == []
    origin.prune([str(version / "model.onnx")])
    with pytest.raises(Unavailable, match="gone from the repository"):
        origin.version(skeleton / "ctr" / "8", lambda done, total: None)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "manifest.json").write_bytes(document)
    with pytest.raises(InvalidInput, match="expected a version of the repository"):
        origin.version(tmp_path / "7", lambda done, total: None)
