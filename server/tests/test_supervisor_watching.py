"""Looks at real folders: what is complete, what is changing, what changed since."""

import asyncio
import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_server.supervisor.watching import Look, Scanner, SeenModel, Watcher
from anabranch_testing.event_loops import on_loop
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import NotFound, TooLarge, Unavailable
from anabranch_wire.manifest import Manifest, encode

LATER = 4e9
"""A time at which everything in these tests was long ago."""


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class Eyes:
    """A scanner with clocks of its own."""

    def __init__(
        self, root: Path, settle_s: float = 5.0, only: tuple[str, ...] | None = None
    ) -> None:
        self.now_s = 1000.0
        self.wall_s = LATER
        self.scanner = Scanner(root, only, settle_s)

    def look(self, after_s: float = 1.0) -> Look:
        self.now_s += after_s
        self.wall_s += after_s
        return self.scanner.look(self.now_s, self.wall_s)

    def model(self, name: str = "m", after_s: float = 1.0) -> SeenModel:
        return self.look(after_s).models[name]


def test_published_versions_are_complete_at_once_others_when_they_have_lain_still(
    root: Path,
) -> None:
    eyes = Eyes(root)
    eyes.look()
    write(root / "m" / "1" / "manifest.json")
    write(root / "m" / "2" / "model.onnx")
    seen = eyes.model()
    assert (list(seen.versions), seen.changing) == ([1], frozenset({2}))
    assert seen.versions[1].published
    assert list(eyes.model(after_s=4.5).versions) == [1]
    write(root / "m" / "2" / "weights.bin")
    assert list(eyes.model(after_s=4.5).versions) == [1]
    seen = eyes.model(after_s=5.0)
    assert (list(seen.versions), seen.changing) == ([1, 2], frozenset())
    assert not seen.versions[2].published


def test_at_the_start_what_is_old_has_settled(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    assert list(Eyes(root).model().versions) == [1]
    young = Eyes(root)
    young.wall_s = time.time()
    assert Eyes(root).model().changing == frozenset()
    assert young.model(after_s=0).changing == {1}


def test_what_has_not_changed_is_the_same_object(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    write(root / "m" / "1" / "warmup" / "a.npz")
    write(root / "n" / "1" / "model.onnx")
    eyes = Eyes(root)
    first = eyes.look()
    write(root / "n" / "2" / "manifest.json")
    second = eyes.look()
    assert second.models["m"] is first.models["m"]
    assert second.models["n"] is not first.models["n"]
    assert second.models["n"].versions[1] is first.models["n"].versions[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write(folder / "model.onnx", "y"),
        lambda folder: write(folder / "more.bin"),
        lambda folder: write(folder / "warmup" / "b.npz"),
        lambda folder: (folder / "warmup" / "a.npz").unlink(),
        lambda folder: os.utime(folder / "model.onnx", (5, 5)),
        lambda folder: os.replace(write(folder.parent / ".new", "y"), folder / "model.onnx"),
    ],
    ids=["content", "file", "file below", "removed", "time", "replaced"],
)
def test_every_change_of_a_file_changes_the_fingerprint(
    root: Path, change: Callable[[Path], object]
) -> None:
    folder = root / "m" / "1"
    write(folder / "model.onnx")
    write(folder / "warmup" / "a.npz")
    eyes = Eyes(root, settle_s=0)
    before = eyes.model().versions[1]
    change(folder)
    after = eyes.model().versions[1]
    assert after.fingerprint != before.fingerprint
    assert eyes.model().versions[1] is after


def test_a_file_in_a_folder_that_was_empty_is_seen(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    (root / "m" / "1" / "warmup").mkdir()
    eyes = Eyes(root, settle_s=0)
    before = eyes.model().versions[1]
    write(root / "m" / "1" / "warmup" / "a.npz")
    assert eyes.model().versions[1].fingerprint != before.fingerprint


def test_deltas_are_no_change_of_the_version(root: Path) -> None:
    write(root / "m" / "1" / "manifest.json")
    eyes = Eyes(root)
    before = eyes.model()
    write(root / "m" / "1" / "deltas" / "00000001" / "delta.json")
    after = eyes.model()
    assert after.versions[1].fingerprint == before.versions[1].fingerprint
    assert after.versions[1].deltas.newest == 1
    assert eyes.model() is after


def test_deltas_make_no_version_wait_until_it_has_settled(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    eyes = Eyes(root)
    eyes.model()
    write(root / "m" / "1" / "deltas" / "00000001" / "delta.json")
    assert eyes.model().versions[1].deltas.newest == 1


def test_a_manifest_that_comes_last_publishes(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    eyes = Eyes(root)
    eyes.look()
    write(root / "m" / "2" / "model.onnx")
    assert eyes.model().changing == {2}
    write(root / "m" / "2" / "manifest.json")
    assert eyes.model().versions[2].published


def test_bytes_are_those_that_workers_hold(root: Path) -> None:
    folder = root / "m" / "1"
    for name in ("model.onnx", "w.bin", "warmup/a.npz", "golden/a.json", "items/0.parquet"):
        write(folder / name, "12345")
    assert Eyes(root).model().versions[1].bytes == 10


def test_what_cannot_be_listed_is_complete_so_that_loading_says_why(root: Path) -> None:
    write(root / "elsewhere.bin")
    folder = root / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(root / "elsewhere.bin")
    eyes = Eyes(root)
    seen = eyes.model()
    assert list(seen.versions) == [1]
    (folder / "model.onnx").unlink()
    write(folder / "model.onnx")
    assert eyes.model().versions.get(1) != seen.versions[1]


def test_links_are_followed_and_seen_to_lead_elsewhere(root: Path) -> None:
    write(root / ".store" / "a" / "model.onnx", "a")
    write(root / ".store" / "b" / "model.onnx", "b")
    (root / "m").mkdir()
    (root / "m" / "1").symlink_to(root / ".store" / "a")
    eyes = Eyes(root, settle_s=0)
    before = eyes.model().versions[1]
    assert before.path == (root / ".store" / "a").resolve()
    (root / "m" / ".new").symlink_to(root / ".store" / "b")
    (root / "m" / ".new").rename(root / "m" / "1")
    after = eyes.model().versions[1]
    assert after.path == (root / ".store" / "b").resolve()
    assert after.fingerprint != before.fingerprint


def test_versions_and_models_that_go_are_not_there(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    write(root / "m" / "2" / "model.onnx")
    write(root / "n" / "1" / "model.onnx")
    eyes = Eyes(root)
    assert list(eyes.model().versions) == [1, 2]
    shutil.rmtree(root / "m" / "2")
    shutil.rmtree(root / "n")
    look = eyes.look()
    assert list(look.models) == ["m"]
    assert list(look.models["m"].versions) == [1]


def test_serving_yaml_is_read_again_when_it_changes(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    eyes = Eyes(root)
    assert (eyes.model().serving_yaml, eyes.model().fault) == ("", None)
    file = write(root / "m" / "serving.yaml", "required: false\n")
    one = eyes.model()
    assert one.serving_yaml == "required: false\n"
    os.utime(file, (7, 7))
    assert eyes.model() is one
    write(root / "m" / "model.yaml", "description: x\n")
    two = eyes.model()
    assert two.settings != one.settings
    file.write_bytes(b"x" * (1 << 21))
    three = eyes.model()
    assert isinstance(three.fault, TooLarge)
    assert three.settings != two.settings
    file.write_bytes(b"\xff")
    assert "not UTF-8" in str(eyes.model().fault)


def test_what_is_no_model_is_said_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(root / "README.md")
    write(root / "m" / "v1" / "model.onnx")
    eyes = Eyes(root)
    for _ in range(3):
        assert list(eyes.look().models) == ["m"]
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "ignored 'README.md'",
        "ignored 'm/v1'",
    ]


def test_only_the_models_that_were_named_are_looked_at(root: Path) -> None:
    for name in ("a", "b"):
        write(root / name / "1" / "model.onnx")
    assert list(Eyes(root, only=("b", "c")).look().models) == ["b"]


def test_a_change_within_the_clocks_grain_is_not_overlooked(root: Path) -> None:
    file = write(root / "m" / "1" / "model.onnx", "a")
    eyes = Eyes(root, settle_s=0)
    eyes.wall_s = file.stat().st_mtime
    before = eyes.model(after_s=0).versions[1]
    status = file.stat()
    other = write(root / ".other", "b")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)
    assert eyes.model(after_s=0).versions[1].fingerprint != before.fingerprint


def test_a_mount_that_went_away_is_no_empty_repository(root: Path) -> None:
    write(root / "m" / "1" / "model.onnx")
    eyes = Eyes(root)
    eyes.look()
    kept = root.rename(root.with_name("unmounted"))
    root.mkdir()
    for _ in range(2):
        with pytest.raises(Unavailable, match="another folder without models"):
            eyes.look()
    root.rmdir()
    with pytest.raises(NotFound, match="no folder"):
        eyes.look()
    kept.rename(root)
    assert list(eyes.look().models) == ["m"]
    shutil.rmtree(root / "m")
    assert eyes.look().models == {}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_repository_that_goes_while_it_is_looked_at_takes_no_model_along(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    for name in ("m", "n"):
        write(root / name / "1" / "model.onnx")
    eyes = Eyes(root)
    assert list(eyes.look().models) == ["m", "n"]
    hidden = root.with_name("hidden")

    def hide(names: list[str]) -> None:
        root.rename(hidden)
        if is_replaced:
            root.mkdir()

    monkeypatch.setattr(eyes.scanner, "_check_place", hide)
    with pytest.raises(Unavailable, match="replaced while"):
        eyes.look()
    monkeypatch.undo()
    if is_replaced:
        root.rmdir()
    hidden.rename(root)
    assert list(eyes.look().models) == ["m", "n"]


@on_loop
async def test_a_watcher_looks_again_and_again_and_at_once_when_poked(root: Path) -> None:
    looks: asyncio.Queue[Look] = asyncio.Queue()
    watcher = Watcher(Scanner(root, None, 0), 3600, looks.put_nowait, lambda: LATER)
    running = asyncio.create_task(watcher.run())
    assert (await looks.get()).models == {}
    write(root / "m" / "1" / "model.onnx")
    watcher.poke()
    assert list((await looks.get()).models) == ["m"]
    running.cancel()
    often = Watcher(Scanner(root, None, 0), 0.001, looks.put_nowait, lambda: LATER)
    running = asyncio.create_task(often.run())
    for _ in range(3):
        await looks.get()
    running.cancel()


@on_loop
async def test_a_repository_that_cannot_be_read_is_reported_once_and_survived(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looks: asyncio.Queue[Look] = asyncio.Queue()
    scanner = Scanner(root, None, 0)
    watcher = Watcher(scanner, 0.001, looks.put_nowait, lambda: LATER)
    away = os.path.join(os.path.dirname(root), "away")
    os.rename(root, away)
    with pytest.raises(NotFound):
        await watcher.look()
    failed = asyncio.Event()
    times = 0

    def look(now_s: float, wall_s: float) -> Look:
        nonlocal times
        times += 1
        if times >= 3:
            failed.set()
        return Scanner.look(scanner, now_s, wall_s)

    scanner.look = look  # type: ignore[method-assign]  # a stand-in's
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(watcher.run())
        await failed.wait()
        os.rename(away, root)
        await looks.get()
    assert [vars(record)["event"] for record in caplog.records] == [
        "repository_unreadable",
        "repository_readable",
    ]
    running.cancel()


@on_loop
async def test_the_scanner_has_one_thread_even_where_a_caller_leaves(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    at_once: list[int] = []
    inside = 0
    look_at = Scanner.look

    def slow(self: Scanner, now_s: float, wall_s: float) -> Look:
        nonlocal inside
        inside += 1
        at_once.append(inside)
        begun.set()
        go_on.wait(30)
        inside -= 1
        return look_at(self, now_s, wall_s)

    monkeypatch.setattr(Scanner, "look", slow)
    watcher = Watcher(Scanner(root, None, 5.0), 60.0, lambda look: None, time.time)
    leaving = asyncio.create_task(watcher.look())
    await asyncio.to_thread(begun.wait, 30)

    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    staying = asyncio.create_task(watcher.look())
    await asyncio.sleep(0.05)  # a second thread, if there were one, would be in by now
    go_on.set()

    assert not (await staying).models
    assert at_once == [1, 1]


@on_loop
async def test_a_fault_of_the_file_system_does_not_end_the_watcher(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looks: asyncio.Queue[Look] = asyncio.Queue()
    scanner = Scanner(root, None, 0)
    faults: list[Exception] = [ZeroDivisionError("odd"), OSError(5, "Input/output error")]

    def look(now_s: float, wall_s: float) -> Look:
        if faults:
            raise faults.pop(0)
        return Scanner.look(scanner, now_s, wall_s)

    scanner.look = look  # type: ignore[method-assign]  # a stand-in's
    watcher = Watcher(scanner, 0.001, looks.put_nowait, lambda: LATER)
    running = asyncio.create_task(watcher.run())
    await looks.get()
    running.cancel()
    assert "a look failed" in caplog.text
    assert "the repository cannot be read: Input/output error" in caplog.text


def test_a_thousand_models_that_do_not_change_cost_little(root: Path) -> None:
    for model in range(1000):
        for version in (1, 2, 3):
            write(root / f"m{model}" / str(version) / "model.onnx")
            write(root / f"m{model}" / str(version) / "manifest.json")
    eyes = Eyes(root)
    first = eyes.look()
    costs_s = []
    look = first
    for _ in range(5):
        begun_s = time.thread_time()
        look = eyes.look()
        costs_s.append(time.thread_time() - begun_s)
    assert all(look.models[name] is seen for name, seen in first.models.items())
    assert min(costs_s) < 0.1
    print(f"1,000 models with 3 versions: {min(costs_s) * 1e3:.0f} ms of processor time a look")


def failing(call: Callable[..., object], at: Path) -> Callable[..., object]:
    """As `call`, but what lies at a place cannot be read."""

    def fails(path: object, *args: object, **kwargs: object) -> object:
        if Path(os.fspath(path)) == at:  # type: ignore[call-overload]
            raise OSError(errno.EIO, "Input/output error")
        return call(path, *args, **kwargs)

    return fails


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("listdir", "m"),  # the model's folder cannot be listed
        ("stat", "m"),
        ("lstat", "m"),
        ("stat", "m/1"),  # a version cannot be looked at
        ("lstat", "m/1"),
        ("listdir", "m/1"),
        ("stat", "m/1/manifest.json"),
    ],
)
def test_what_cannot_be_read_for_a_while_has_not_gone(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, place: str
) -> None:
    write(root / "m" / "1" / "manifest.json")
    write(root / "m" / "2" / "manifest.json")
    eyes = Eyes(root)
    assert list(eyes.model().versions) == [1, 2]

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing(getattr(os, call), root / place))
        write(root / "m" / "3" / "manifest.json")  # so that the folder is listed again
        os.utime(root / "m" / "1")
        during = eyes.model()

    assert {1, 2} <= {*during.versions, *during.changing}
    assert list(eyes.model(after_s=10.0).versions) == [1, 2, 3]


def test_a_version_whose_files_are_elsewhere_has_the_size_that_its_manifest_names(
    root: Path,
) -> None:
    named = {"model.onnx": 300, "tables/0.seg": 9, "warmup/a.npz": 8, "weights.bin": 4000}
    files = tuple(ListedFile(path=path, bytes=n, sha256="0" * 64) for path, n in named.items())
    document = encode(
        Manifest(
            format=1, kind="version", model="m", version=1, producer="test", created=1.0,
            model_file="model.onnx", files=files,
        )
    )  # fmt: skip
    write(root / "m" / "1" / "manifest.json", document.decode())
    write(root / "m" / "2" / "manifest.json", "{}")

    versions = Eyes(root).model().versions

    assert versions[1].bytes == len(document) + 4300
    assert versions[2].bytes == 2
