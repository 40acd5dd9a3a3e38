"""A repository in a real S3 server, mirrored: what appears, what goes, and what it costs."""

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import fsspec
import pytest

from anabranch_model_store.deltas.delta_folders import read_delta
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.sources.mirrors import Mirror
from anabranch_model_store.sources.remote_folders import RemoteFolder
from anabranch_testing.published_deltas import write_delta
from anabranch_testing.s3_servers import S3Server, s3_server
from anabranch_wire.errors import TooLarge, Unavailable

MANIFEST = b'{"format": 1}\n'


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> Iterator["Store"]:
    server.come()
    yield Store(server, re.sub(r"\W+", "-", request.node.name))
    server.come()


class Store:
    """One prefix of the bucket, as a publisher sees it."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self.server = server
        self.url = f"{server.url}/{prefix}"
        self.prefix = prefix
        self.files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
        server.asked.clear()

    def put(self, path: str, data: bytes) -> None:
        self.files.pipe_file(f"{self.url}/{path}", data)

    def put_delta(self, tmp_path: Path, number: int, place: str = "ctr/1") -> None:
        document = write_delta(tmp_path / "drafts" / place, number).read_bytes()
        self.put(f"{place}/deltas/{number:08}/{'0' * 16}/0000.safetensors", b"rows")
        self.put(f"{place}/deltas/{number:08}/delta.json", document)

    def remove(self, path: str) -> None:
        self.files.rm(f"{self.url}/{path}", recursive=True)
        self.files.invalidate_cache()

    def asked(self) -> list[str]:
        """What was asked for since the last time."""
        asked = list(self.server.asked)
        self.server.asked.clear()
        return [one.key.removeprefix(f"{self.prefix}/") or "list" for one in asked]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def mirror(store: Store, root: Path, **told: object) -> Mirror:
    return Mirror(RemoteFolder(store.url, {}), root, **told)  # type: ignore[arg-type]  # of many types


def paths(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def test_documents_are_mirrored_and_nothing_else(store: Store, tmp_path: Path) -> None:
    store.put("ctr/serving.yaml", b"format: 1\n")
    store.put("ctr/model.yaml", b"")
    store.put("ctr/notes.txt", b"x")
    store.put("ctr/1/model.onnx", b"x" * 1000)
    store.put("ctr/1/manifest.json", MANIFEST)
    store.put("ctr/2/model.onnx", b"still without a manifest")
    store.put("not a model!/1/manifest.json", MANIFEST)
    store.put_delta(tmp_path, 1)
    store.put_delta(tmp_path, 2)
    root = tmp_path / "mirror"

    assert mirror(store, root).look()

    assert paths(root) == [
        "ctr/1/deltas/00000001/delta.json",
        "ctr/1/deltas/00000002/delta.json",
        "ctr/1/manifest.json",
        "ctr/model.yaml",
        "ctr/serving.yaml",
    ]
    scan = scan_repository(root)
    assert scan.ignored == frozenset()
    assert scan.models["ctr"].versions[1].published  # type: ignore[index]


def test_a_look_that_finds_nothing_new_asks_three_questions(store: Store, tmp_path: Path) -> None:
    store.put("ctr/serving.yaml", b"format: 1\n")
    store.put("ctr/1/manifest.json", MANIFEST)
    for number in range(1, 6):
        store.put_delta(tmp_path, number)
    mirrored = mirror(store, tmp_path / "mirror")
    mirrored.look()
    store.asked()

    assert not mirrored.look()

    assert store.asked() == ["list", "list", "ctr/1/deltas/00000006/delta.json"]


def test_deltas_that_come_are_seen_with_the_next_look(store: Store, tmp_path: Path) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    mirrored = mirror(store, tmp_path / "mirror")
    mirrored.look()

    for number in range(1, 12):
        store.put_delta(tmp_path, number)
    assert mirrored.look()

    assert sum("delta.json" in path for path in paths(tmp_path / "mirror")) == 11
    assert not mirrored.look()


def test_a_delta_whose_document_is_not_there_yet_is_not_seen(store: Store, tmp_path: Path) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    mirrored = mirror(store, tmp_path / "mirror")
    mirrored.look()

    store.put(f"ctr/1/deltas/00000001/{'0' * 16}/0000.safetensors", b"rows")
    assert not mirrored.look()
    store.put("ctr/1/deltas/00000001/delta.json", b'{"format": 1, "kin')  # not every store is S3
    assert not mirrored.look()
    assert paths(tmp_path / "mirror") == ["ctr/1/manifest.json"]

    store.put_delta(tmp_path, 1)
    assert mirrored.look()
    assert len(paths(tmp_path / "mirror")) == 2


def test_a_delta_beyond_a_gap_and_one_that_goes_are_seen_now_and_then(
    store: Store, tmp_path: Path
) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    for number in (1, 2):
        store.put_delta(tmp_path, number)
    clock = Clock()
    mirrored = mirror(store, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    store.put_delta(tmp_path, 4)
    store.remove("ctr/1/deltas/00000001")

    assert not mirrored.look()
    clock.now_s += 60.0
    assert mirrored.look()

    assert paths(tmp_path / "mirror") == [
        "ctr/1/deltas/00000002/delta.json",
        "ctr/1/deltas/00000004/delta.json",
        "ctr/1/manifest.json",
    ]


def test_versions_settings_and_models_come_and_go(store: Store, tmp_path: Path) -> None:
    for place in ("ctr/1", "ctr/2", "cvr/1"):
        store.put(f"{place}/manifest.json", MANIFEST)
    store.put("ctr/serving.yaml", b"format: 1\n")
    mirrored = mirror(store, tmp_path / "mirror")
    mirrored.look()

    store.put("ctr/serving.yaml", b"format: 1\nrequired: false\n")
    store.put("ctr/3/manifest.json", MANIFEST)
    store.remove("ctr/1")
    store.remove("cvr")
    assert mirrored.look()

    root = tmp_path / "mirror"
    assert paths(root) == ["ctr/2/manifest.json", "ctr/3/manifest.json", "ctr/serving.yaml"]
    assert "required" in (root / "ctr" / "serving.yaml").read_text()
    store.remove("ctr/serving.yaml")
    assert mirrored.look()
    assert not (root / "ctr" / "serving.yaml").exists()


def test_a_version_that_is_published_anew_is_another_one(store: Store, tmp_path: Path) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    store.put_delta(tmp_path, 1)
    clock = Clock()
    mirrored = mirror(store, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    store.remove("ctr/1")
    store.put("ctr/1/manifest.json", b'{"format": 1, "step": 2}\n')

    clock.now_s += 60.0
    assert mirrored.look()

    (path,) = paths(tmp_path / "mirror")
    assert json.loads((tmp_path / "mirror" / path).read_bytes())["step"] == 2


def test_what_is_mirrored_serves_the_next_process_while_the_store_is_down(
    store: Store, tmp_path: Path
) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    store.put_delta(tmp_path, 1)
    first = mirror(store, tmp_path / "mirror")
    first.look()
    first.close()
    before = paths(tmp_path / "mirror")
    (tmp_path / "mirror" / "ctr" / ".making-left").mkdir()
    store.server.go()

    second = mirror(store, tmp_path / "mirror")

    assert second.holds_models
    with pytest.raises(Unavailable, match="Could not connect"):
        second.look()
    assert paths(tmp_path / "mirror") == before
    assert not (tmp_path / "mirror" / "ctr" / ".making-left").exists()
    store.server.come()
    store.put_delta(tmp_path, 2)
    assert second.look()
    assert len(paths(tmp_path / "mirror")) == len(before) + 1


def test_a_bucket_whose_models_are_gone_empties_nothing(store: Store, tmp_path: Path) -> None:
    mirrored = mirror(store, tmp_path / "mirror")
    with pytest.raises(Unavailable, match="nothing lies there"):
        mirrored.look()
    assert not mirrored.holds_models
    store.put("ctr/1/manifest.json", MANIFEST)
    mirrored.look()
    store.remove("ctr")
    with pytest.raises(Unavailable, match="nothing lies there"):
        mirrored.look()
    store.put("readme", b"x")
    with pytest.raises(Unavailable, match="no model lies there any more"):
        mirrored.look()
    assert paths(tmp_path / "mirror") == ["ctr/1/manifest.json"]


def test_only_models_that_are_asked_for_are_mirrored(store: Store, tmp_path: Path) -> None:
    for name in ("ctr", "cvr"):
        store.put(f"{name}/1/manifest.json", MANIFEST)
    mirror(store, tmp_path / "mirror", only=("cvr",)).look()
    assert paths(tmp_path / "mirror") == ["cvr/1/manifest.json"]


def test_errors_of_the_store_hold_no_credentials(store: Store) -> None:
    options = {"key": "wrong-key-id", "secret": "top-secret", "client_kwargs": {}}
    remote = RemoteFolder("s3://no-such-bucket-here/x", options)
    assert remote.read("a", 10) is None
    store.server.go()
    with pytest.raises(Unavailable) as caught:
        RemoteFolder("s3://wrong-key-id/x", options).read("a", 10)
    assert "wrong-key-id" not in caught.value.message.replace("s3://wrong-key-id/x", "")
    assert "top-secret" not in caught.value.message


def test_reading_is_bounded(store: Store) -> None:
    remote = RemoteFolder(store.url, {})
    store.put("empty", b"")
    store.put("long", b"x" * 100)
    assert remote.read("empty", 10) == b""
    assert remote.read("long", 100) == b"x" * 100
    assert remote.read("none", 10) is None
    with pytest.raises(TooLarge, match="more than 99 bytes"):
        remote.read("long", 99)


def test_servers_that_share_a_cache_mirror_once(store: Store, tmp_path: Path) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    first, second = (mirror(store, tmp_path / "mirror") for _ in range(2))
    assert first.look()
    store.asked()
    assert second.look()
    assert not second.look()
    assert second.holds_models
    assert store.asked() == []

    first.close()
    store.put_delta(tmp_path, 1)
    assert second.look()
    assert len(paths(tmp_path / "mirror")) == 2
    assert not first.look()


class Faulty(RemoteFolder):
    """A store that does not send some objects, or not all of them."""

    def __init__(self, url: str) -> None:
        super().__init__(url, {})
        self.refused: set[str] = set()
        self.sent: dict[str, bytes | None] = {}

    def read(self, path: str, max_bytes: int) -> bytes | None:
        if path in self.refused:
            raise Unavailable(f"{path}: AccessDenied")
        return self.sent[path] if path in self.sent else super().read(path, max_bytes)


def delta_path(number: int, place: str = "ctr/1") -> str:
    return f"{place}/deltas/{number:08}/delta.json"


def test_an_object_that_is_refused_keeps_nothing_else_back_and_is_said_once(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("ctr/1", "cvr/1"):
        store.put(f"{place}/manifest.json", MANIFEST)
    remote = Faulty(store.url)
    mirrored = Mirror(remote, tmp_path / "mirror")
    mirrored.look()
    for number in (1, 2):
        store.put_delta(tmp_path, number)
    store.put_delta(tmp_path, 1, "cvr/1")
    store.put("ctr/2/manifest.json", MANIFEST)
    store.put("ctr/3/manifest.json", MANIFEST)
    remote.refused = {delta_path(1), "ctr/3/manifest.json"}

    with caplog.at_level(logging.ERROR):
        looks = [mirrored.look() for _ in range(3)]

    assert looks == [True, False, False]
    assert (tmp_path / "mirror" / delta_path(1, "cvr/1")).exists()
    assert (tmp_path / "mirror" / "ctr/2/manifest.json").exists()
    assert sorted(one.getMessage().partition(":")[0] for one in caplog.records) == sorted(
        remote.refused
    )
    remote.refused = set()
    with caplog.at_level(logging.INFO):
        while mirrored.look():
            pass
    assert sum(one.getMessage().endswith("can be read again") for one in caplog.records) == 2
    assert "ctr/3/manifest.json" in paths(tmp_path / "mirror")
    assert {delta_path(1), delta_path(2)} <= set(paths(tmp_path / "mirror"))


def test_a_store_that_refuses_the_first_object_is_at_fault(store: Store, tmp_path: Path) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    remote = Faulty(store.url)
    remote.refused = {"ctr/1/manifest.json"}
    with pytest.raises(Unavailable, match="AccessDenied"):
        Mirror(remote, tmp_path / "mirror").look()


@pytest.mark.parametrize("data", [b"[" * 300_000, b" " * (16 * 1024 * 1024 + 1)])
def test_a_delta_that_nobody_can_decode_is_a_fault_of_its_version_until_it_is_mended(
    store: Store, tmp_path: Path, data: bytes
) -> None:
    for place in ("ctr/1", "cvr/1"):
        store.put(f"{place}/manifest.json", MANIFEST)
    clock = Clock()
    mirrored = mirror(store, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    store.put(delta_path(1), data)
    store.put_delta(tmp_path, 1, "cvr/1")

    assert mirrored.look()
    assert not mirrored.look()

    assert (tmp_path / "mirror" / delta_path(1, "cvr/1")).exists()
    with pytest.raises(DeltaCorrupt):
        read_delta(tmp_path / "mirror" / "ctr" / "1", 1)
    store.put_delta(tmp_path, 1)
    clock.now_s += 60.0
    assert mirrored.look()
    assert read_delta(tmp_path / "mirror" / "ctr" / "1", 1)


@pytest.mark.parametrize("file", ["serving.yaml", "model.yaml"])
@pytest.mark.parametrize("sent", [None, b"", b"form", "refused"])
def test_a_new_model_waits_for_settings_that_are_sent_whole(
    store: Store, tmp_path: Path, file: str, sent: bytes | str | None
) -> None:
    path = f"ctr/{file}"
    store.put("ctr/1/manifest.json", MANIFEST)
    remote = Faulty(store.url)
    store.put(path, b"format: 1\n# another\n")
    if isinstance(sent, str):
        remote.refused = {path}
    else:
        remote.sent = {path: sent}

    mirrored = Mirror(remote, tmp_path / "new")
    with pytest.raises(Unavailable) if sent == "refused" else nullcontext():
        mirrored.look()
    assert paths(tmp_path / "new") == []  # a model that is new does not come without them
    remote.refused, remote.sent = set(), {}
    assert mirrored.look()
    assert (tmp_path / "new" / path).read_bytes() == b"format: 1\n# another\n"


def test_settings_of_a_served_model_stay_while_new_ones_cannot_be_read(
    store: Store, tmp_path: Path
) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    store.put("ctr/serving.yaml", b"format: 1\n")
    remote = Faulty(store.url)
    mirrored = Mirror(remote, tmp_path / "mirror")
    mirrored.look()
    store.put("ctr/serving.yaml", b"format: 1\n# another\n")
    store.put("ctr/model.yaml", b"format: 1\n")
    store.put_delta(tmp_path, 1)
    remote.sent = {"ctr/serving.yaml": b"form", "ctr/model.yaml": None}

    assert mirrored.look()

    settings = tmp_path / "mirror" / "ctr" / "serving.yaml"
    assert settings.read_bytes() == b"format: 1\n"
    assert delta_path(1) in paths(tmp_path / "mirror")
    remote.sent = {}
    assert mirrored.look()
    assert settings.read_bytes() == b"format: 1\n# another\n"
    assert "ctr/model.yaml" in paths(tmp_path / "mirror")


@pytest.mark.parametrize("gone", [".", "ctr", "ctr/1", "ctr/1/deltas"])
def test_a_cache_folder_that_is_emptied_fills_again(
    store: Store, tmp_path: Path, gone: str
) -> None:
    store.put("ctr/1/manifest.json", MANIFEST)
    store.put_delta(tmp_path, 1)
    clock = Clock()
    mirrored = mirror(store, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    shutil.rmtree(tmp_path / "mirror" / gone)
    store.put_delta(tmp_path, 2)

    assert mirrored.look()
    clock.now_s += 60.0
    mirrored.look()

    assert paths(tmp_path / "mirror") == [delta_path(1), delta_path(2), "ctr/1/manifest.json"]
