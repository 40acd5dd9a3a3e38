"""Readers see whole files only, nobody else reads them, and no name is used twice."""

import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch_server.feature_log.files import LogFile, Naming, remove_leftovers
from anabranch_wire.errors import PermissionDenied
from anabranch_wire.snapshots import Snapshot

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA = pa.schema([("n", pa.int64())])
SNAPSHOT = Snapshot("ctr", 42, 17)


def batch(*numbers: int) -> Any:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, SCHEMA)


def visible(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*/*") if not path.name.startswith(".")]


def test_a_file_appears_whole_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    path = Naming(folder, 3).next(SNAPSHOT, 1764417655.0)
    file = LogFile(path, SCHEMA, now=0.0)
    file.add(batch(1, 2))
    file.add(batch(3))

    assert visible(folder) == []
    file.finish()

    assert visible(folder) == [path]
    assert path.parent == folder / "ctr" / "42"
    assert path.name.startswith("20251129T120055Z-w3-")
    assert pq.read_table(path)["n"].to_pylist() == [1, 2, 3]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for place in (folder, folder / "ctr", folder / "ctr" / "42"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_what_is_unfinished_is_passed_by_by_readers_of_the_folder(tmp_path: Path) -> None:
    naming = Naming(tmp_path / "log", 0)
    whole = LogFile(naming.next(SNAPSHOT, 0.0), SCHEMA, now=0.0)
    whole.add(batch(1))
    whole.finish()
    unfinished = LogFile(naming.next(SNAPSHOT, 0.0), SCHEMA, now=0.0)
    unfinished.add(batch(2))

    assert ds.dataset(tmp_path / "log", format="parquet").to_table()["n"].to_pylist() == [1]

    unfinished.discard()
    assert len(list((tmp_path / "log" / "ctr" / "42").iterdir())) == 1


def test_a_file_is_due_when_it_is_old_or_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_server.feature_log.files._FILE_BYTES", 4000)
    file = LogFile(Naming(tmp_path / "log", 0).next(SNAPSHOT, 0.0), SCHEMA, now=100.0)
    file.add(batch(1))

    assert not file.is_due(100.0)
    assert file.is_due(file.due)

    file.add(batch(*range(500)))
    assert file.is_due(100.0)
    file.discard()


def test_many_rows_are_written_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_server.feature_log.files._GROUP_BYTES", 1000)
    path = Naming(tmp_path / "log", 0).next(SNAPSHOT, 0.0)
    file = LogFile(path, SCHEMA, now=0.0)
    for begin in range(0, 1000, 100):
        file.add(batch(*range(begin, begin + 100)))
    file.finish()

    found = pq.ParquetFile(path)
    assert 2 <= found.num_row_groups <= 5
    assert found.read()["n"].to_pylist() == list(range(1000))


def test_names_differ_over_files_processes_and_workers(tmp_path: Path) -> None:
    namings = [Naming(tmp_path / "log", worker) for worker in (0, 0, 1)]

    names = {naming.next(SNAPSHOT, 0.0).name for naming in namings for _ in range(3)}

    assert len(names) == 9


def test_a_folder_that_others_may_write_into_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "of_others").touch()
    folder.chmod(0o777)

    with pytest.raises(PermissionDenied, match="others may write into this folder"):
        Naming(folder, 0).next(SNAPSHOT, 0.0)


def test_leftovers_of_dead_processes_go_once_they_are_old(tmp_path: Path) -> None:
    naming = Naming(tmp_path / "log", 0)
    whole_path = naming.next(SNAPSHOT, 0.0)
    LogFile(whole_path, SCHEMA, now=0.0).finish()
    for number in range(2):
        (whole_path.parent / f".{number}.parquet.part").touch()
    parts = sorted((tmp_path / "log").glob("*/*/.*.part"))
    now = time.time()
    os.utime(parts[0], (now, now - 3600))

    assert remove_leftovers(tmp_path / "log", now) == 1

    assert sorted((tmp_path / "log").glob("*/*/.*.part")) == parts[1:]
    assert len(visible(tmp_path / "log")) == 1
