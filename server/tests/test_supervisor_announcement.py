import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from anabranch_server.processes.boot import Boot, ListenAddress
from anabranch_server.ready import Ready, read_ready
from anabranch_server.settings import read_settings, serve_config
from anabranch_server.supervisor.announcement import Announcement


def _boot(folder: Path, *, incarnation: int = 1, ready_file: Path | None = None) -> Boot:
    config = serve_config(read_settings({"run_dir": str(folder)}, {}, None), str(folder), cores=1)
    names = ("http", "grpc", "metrics", "admin", "admin_grpc")
    return Boot(
        role="supervisor",
        launch="0" * 16,
        launcher_pid=4242,
        launcher_started=0.0,
        config=replace(config, ready_file=ready_file),
        addresses={name: ListenAddress("::1", port) for port, name in enumerate(names, 8000)},
        descriptors={},
        run_dir=str(folder),
        incarnation=incarnation,
    )


def _content(folder: Path) -> Ready:
    ready = read_ready(folder / "ready.json")
    assert ready is not None
    return ready


def test_the_file_names_addresses_and_processes(tmp_path: Path) -> None:
    Announcement(_boot(tmp_path), 4243).make([4244, 4245], {}, {"ctr": "42+17"})

    ready = _content(tmp_path)
    assert (ready.pid, ready.supervisor, ready.loader, ready.workers) == (
        *(4242, 4243, None),
        (4244, 4245),
    )
    assert (ready.http, ready.admin_grpc) == ("[::1]:8000", "[::1]:8004")
    assert ready.models == {"ctr": "42+17"}
    assert ready.seconds > 0


def test_it_is_written_again_when_a_worker_was_replaced_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    second = tmp_path / "elsewhere.json"
    announcement = Announcement(_boot(tmp_path, ready_file=second), 4243)
    announcement.make([1, 2], {}, {})
    first = _content(tmp_path)

    announcement.make([1, 3], {"versions": 9, "deltas": 10}, {})

    assert _content(tmp_path) == msgspec.structs.replace(
        first, workers=(1, 3), loader=9, delta_loader=10
    )
    assert second.read_bytes() == (tmp_path / "ready.json").read_bytes()
    events = [getattr(record, "event", None) for record in caplog.records]
    assert events == ["ready"]


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    announcement = Announcement(_boot(tmp_path), 4243)
    announcement.make([1], {}, {})
    written = (tmp_path / "ready.json").stat()

    announcement.make([1], {}, {})

    assert (tmp_path / "ready.json").stat() == written


def test_what_somebody_took_away_comes_back(tmp_path: Path) -> None:
    folder, second = tmp_path / "run", tmp_path / "elsewhere.json"
    folder.mkdir(mode=0o700)
    announcement = Announcement(_boot(folder, ready_file=second), 4243)
    announcement.make([1], {}, {})
    before = _content(folder)
    second.unlink()
    shutil.rmtree(folder)

    announcement.make([1], {}, {})

    assert _content(folder) == read_ready(second) == before
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_that_could_not_be_written_is_tried_again_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = tmp_path / "late" / "ready.json"
    announcement = Announcement(_boot(tmp_path, ready_file=late), 4243)
    for _ in range(3):
        announcement.make([1], {}, {})
    late.parent.mkdir()

    announcement.make([1], {}, {})

    assert read_ready(late) == _content(tmp_path)
    events = [getattr(record, "event", None) for record in caplog.records]
    assert events.count("ready_file") == 1


def test_another_supervisor_goes_on_where_the_first_was_ready(tmp_path: Path) -> None:
    Announcement(_boot(tmp_path), 4243).make([1], {}, {})
    before = _content(tmp_path)

    again = Announcement(_boot(tmp_path, incarnation=2), 4250)

    assert again.was_made
    again.make([1], {}, {})
    assert _content(tmp_path) == msgspec.structs.replace(before, supervisor=4250)


def test_what_an_earlier_server_left_is_removed(tmp_path: Path) -> None:
    Announcement(_boot(tmp_path), 4243).make([1], {}, {})

    first = Announcement(_boot(tmp_path), 5000)

    assert not first.was_made
    assert not (tmp_path / "ready.json").exists()


def test_a_file_that_cannot_be_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    announcement = Announcement(_boot(tmp_path, ready_file=tmp_path / "no" / "such"), 1)

    announcement.make([1], {}, {})

    assert "ready_file" in [getattr(record, "event", None) for record in caplog.records]
    assert _content(tmp_path).workers == (1,)


def test_withdrawing_removes_the_files(tmp_path: Path) -> None:
    announcement = Announcement(_boot(tmp_path), 4243)
    announcement.make([1], {}, {})

    announcement.withdraw()

    assert not (tmp_path / "ready.json").exists()
