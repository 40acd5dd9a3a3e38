"""Deltas seen in a folder: which there are, what the newest says, and what a look costs."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from anabranch_publish import Publisher, publish_version
from anabranch_server.supervisor.seen_deltas import NO_DELTAS
from anabranch_server.supervisor.watching import Scanner
from anabranch_server.supervisor.watching_deltas import DeltaWatch
from anabranch_testing.published_deltas import write_delta

LATER = 4e9


@pytest.fixture
def version(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "m" / "42"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is such a place: many small files are made sooner there."""
    place = Path("/dev/shm")
    with TemporaryDirectory(dir=place if place.is_dir() else tmp_path) as folder:
        yield Path(folder)


class Eyes:
    """A watch with clocks of its own."""

    def __init__(self, version: Path) -> None:
        self.watch = DeltaWatch(str(version), "m/42", "m", 42)
        self.now_s = 1000.0

    def look(self, after_s: float = 1.0):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.now_s += after_s
        return self.watch.look(self.now_s, LATER)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count what a look asks of the file system."""
    calls: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for name in ("stat", "scandir", "listdir", "open"):
            real = getattr(os, name)

            def count(*args: object, _real=real, _name=name, **told: object):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                calls[_name] += 1
                return _real(*args, **told)

            patch.setattr(os, name, count)
        yield calls


def test_without_deltas_there_are_none(version: Path) -> None:
    eyes = Eyes(version)
    assert eyes.look() is NO_DELTAS
    (version / "deltas").mkdir()
    assert eyes.look() is NO_DELTAS


def test_a_delta_that_stands_for_others_is_seen_in_a_burst_too(version: Path) -> None:
    eyes = Eyes(version)
    write_delta(version, 1)
    assert eyes.look().jumps == ()
    for number in range(2, 41):
        write_delta(version, number, replaces_from=1 if number == 35 else None)
    assert eyes.look().jumps == ((1, 35),)


def test_a_delta_counts_once_its_document_is_there(version: Path) -> None:
    eyes = Eyes(version)
    (version / "deltas" / "00000001" / "3f9a61c2d40e7b58").mkdir(parents=True)
    assert eyes.look().ranges == ()
    write_delta(version, 1, step=7, event_time=5.0, created=6.0)
    seen = eyes.look()
    assert (seen.ranges, seen.newest, seen.replaces_from) == (((1, 1),), 1, 1)
    assert (seen.step, seen.event_time, seen.created) == (7, 5.0, 6.0)
    assert eyes.look() is seen
    write_delta(version, 2)
    assert eyes.look().ranges == ((1, 2),)


def test_gaps_are_seen_and_filled(version: Path) -> None:
    eyes = Eyes(version)
    for number in (1, 2, 5, 9):
        write_delta(version, number)
    assert eyes.look().ranges == ((1, 2), (5, 5), (9, 9))
    write_delta(version, 4)
    assert eyes.look().ranges == ((1, 2), (4, 5), (9, 9))
    (version / "deltas" / "00000003").mkdir()
    assert eyes.look().ranges == ((1, 2), (4, 5), (9, 9))
    write_delta(version, 3)  # its folder does not show in that of all deltas
    assert eyes.look().ranges == ((1, 5), (9, 9))


def test_a_number_that_is_skipped_does_not_hide_the_next(version: Path) -> None:
    eyes = Eyes(version)
    write_delta(version, 1)
    eyes.look()
    (version / "deltas" / "00000002").mkdir()
    write_delta(version, 3)
    assert eyes.look().ranges == ((1, 1), (3, 3))
    write_delta(version, 7)
    assert eyes.look().ranges == ((1, 1), (3, 3), (7, 7))


def test_what_comes_with_others_but_after_a_gap_is_seen_at_once(version: Path) -> None:
    eyes = Eyes(version)
    write_delta(version, 1)
    eyes.look()
    for number in (2, 4, 7):
        write_delta(version, number)
    assert eyes.look().ranges == ((1, 2), (4, 4), (7, 7))


def test_what_is_taken_away_counts_no_more(version: Path) -> None:
    eyes = Eyes(version)
    for number in (1, 2, 3):
        write_delta(version, number)
    assert eyes.look().newest == 3
    (version / "deltas" / "00000003" / "delta.json").unlink()
    seen = eyes.look()
    assert (seen.newest, seen.ranges) == (2, ((1, 2),))
    shutil.rmtree(version / "deltas" / "00000001")
    assert eyes.look().ranges == ((2, 2),)
    shutil.rmtree(version / "deltas")
    assert eyes.look() is NO_DELTAS


def test_a_document_that_is_replaced_is_read_again(version: Path) -> None:
    eyes = Eyes(version)
    write_delta(version, 1, step=1)
    first = eyes.look()
    write_delta(version, 1, step=22)
    second = eyes.look()
    assert (first.step, second.step) == (1, 22)
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"format": 2}', "x" * 100],
    ids=["empty", "cut off", "newer", "no JSON"],
)
def test_a_document_that_makes_no_sense_is_a_delta_all_the_same(version: Path, text: str) -> None:
    write_delta(version, 1)
    folder = version / "deltas" / "00000002"
    folder.mkdir()
    (folder / "delta.json").write_text(text)
    seen = Eyes(version).look()
    assert (seen.newest, seen.replaces_from, seen.event_time) == (2, 0, None)
    assert seen.fingerprint


def test_a_document_of_another_delta_says_nothing(version: Path) -> None:
    write_delta(version, 5, replaces_from=1)
    (version / "deltas" / "00000005").rename(version / "deltas" / "00000008")
    seen = Eyes(version).look()
    assert (seen.newest, seen.replaces_from) == (8, 0)


def test_cumulative_ones_among_new_ones_are_known(version: Path) -> None:
    eyes = Eyes(version)
    write_delta(version, 1)
    eyes.look()
    write_delta(version, 5, replaces_from=2)
    write_delta(version, 6)
    seen = eyes.look()
    assert (seen.ranges, seen.jumps) == (((1, 1), (5, 6)), ((2, 5),))
    assert seen.reach(1) == 6


def test_what_replaces_those_that_were_removed_is_known_at_a_start(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    publish_version(tmp_path / "m", tmp_path / "m.onnx", version=42)
    with Publisher(tmp_path / "m", version=42) as publisher:
        for _ in range(3):
            publisher.delta().publish()
        publisher.compact()
        publisher.delta().publish()
        running = Eyes(tmp_path / "m/42")
        assert running.look().reach(0) == 5
        publisher.prune(keep=1, age_s=0)

    seen = Eyes(tmp_path / "m/42").look()

    assert seen.ranges == ((3, 5),)
    assert seen.reach(0) == 5
    assert running.look(after_s=100.0).reach(0) == 5


def test_other_names_are_noted_and_hidden_ones_are_not(version: Path) -> None:
    eyes = Eyes(version)
    write_delta(version, 1)
    for name in ("17", "000000017", "00000000", "notes.txt", ".tmp"):
        (version / "deltas" / name).mkdir()
    assert eyes.look().ranges == ((1, 1),)
    assert {one.place for one in eyes.watch.ignored} == {
        "m/42/deltas/17",
        "m/42/deltas/000000017",
        "m/42/deltas/00000000",
        "m/42/deltas/notes.txt",
    }


def test_what_cannot_be_seen_for_a_while_has_not_gone(
    version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes = Eyes(version)
    write_delta(version, 1)
    seen = eyes.look()

    def refuse(path: object, **told: object) -> os.stat_result:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        assert eyes.look() is seen
    assert eyes.look() is seen


def test_a_look_costs_a_few_calls_however_many_deltas_there_are(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, many = memory / "m" / "42", 20_000
    version.mkdir(parents=True)
    write_delta(version, many)
    monkeypatch.chdir(version / "deltas")
    for number in range(1, many):
        os.mkdir(f"{number:08}")
        os.close(os.open(f"{number:08}/delta.json", os.O_CREAT | os.O_WRONLY))
    eyes = Eyes(version)
    with counted(monkeypatch) as calls:
        assert eyes.look().ranges == ((1, many),)
    assert calls["scandir"] == 1

    with counted(monkeypatch) as calls:
        eyes.look()
    assert (calls["scandir"], calls["open"]) == (0, 0)
    assert calls["stat"] <= 6

    for number in range(many + 1, many + 4):
        write_delta(version, number)
        with counted(monkeypatch) as calls:
            assert eyes.look().newest == number
        assert calls["scandir"] == 0
        assert calls["stat"] <= 12

    write_delta(version, many + 50)  # far ahead: the folder is listed, once
    with counted(monkeypatch) as calls:
        assert eyes.look().ranges == ((1, many + 3), (many + 50, many + 50))
        eyes.look()
    assert calls["scandir"] == 1
    assert calls["stat"] <= 24


def test_now_and_then_a_folder_that_changes_all_the_time_is_listed(
    version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes = Eyes(version)
    for number in (1, 2, 3):
        write_delta(version, number)
    eyes.look()
    shutil.rmtree(version / "deltas" / "00000001")
    write_delta(version, 4)  # explains why the folder has changed
    assert eyes.look().ranges == ((1, 4),)
    assert eyes.look(after_s=61).ranges == ((2, 4),)


def test_a_scanner_shows_deltas_beside_the_files_of_a_version(version: Path) -> None:
    (version / "model.onnx").write_text("x")
    scanner = Scanner(version.parents[1], None, 0)
    before = scanner.look(1.0, LATER).models["m"]
    write_delta(version, 1)
    (version / "deltas" / "x").mkdir()
    after = scanner.look(2.0, LATER).models["m"]
    assert (before.versions[42].deltas, after.versions[42].deltas.newest) == (NO_DELTAS, 1)
    assert after.versions[42].fingerprint == before.versions[42].fingerprint
    assert after is not before
    assert scanner.look(3.0, LATER).models["m"] is after
