"""Calls go on while servers are killed, started again and get new versions: none fails."""

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch_testing import new_connections
from anabranch_testing.client_faces import FACES, Face, FaceName, open_face
from anabranch_testing.server_processes import ServerProcesses
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.spinning_models import write_spinning_model
from anabranch_wire.errors import AnabranchError

OPTIONS = ("--settle-s", "0", "--workers", "1", "--poll-s", "0.1")
CANDIDATES = {"item_id": [1, 2], "price": [1.0, 2.0]}


@dataclass
class Calls:
    """What became of the calls of one face."""

    versions: Counter[str] = field(default_factory=Counter)
    wrong: list[object] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def make(self, face: Face, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                ranking = face.rank("spin", {"age": 1.0}, CANDIDATES, timeout_s=40)
            except AnabranchError as error:
                self.failed.append(repr(error))
                continue
            self.versions[ranking.version] += 1
            if ranking.ids.tolist() != [2, 1] or ranking.scores.tolist() != [3.0, 2.0]:
                self.wrong.append(ranking)
            time.sleep(0.01)


@contextmanager
def calling(
    addresses: Callable[[str], list[str]], calls: dict[FaceName, Calls]
) -> Iterator[dict[FaceName, Face]]:
    """Call by every face from two threads each until the block ends."""
    ended = threading.Event()
    with ExitStack() as stack:
        faces: dict[FaceName, Face] = {
            name: stack.enter_context(open_face(name, addresses)) for name in FACES
        }
        threads = [
            threading.Thread(target=calls[name].make, args=(face, ended))
            for name, face in faces.items()
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        try:
            yield faces
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def grows(calls: dict[FaceName, Calls], timeout_s: float = 60.0) -> None:
    """Wait until every face was answered some more."""
    before = {name: some.versions.total() for name, some in calls.items()}
    end = time.monotonic() + timeout_s
    while any(some.versions.total() < before[name] + 20 for name, some in calls.items()):
        assert time.monotonic() < end, {name: dict(some.versions) for name, some in calls.items()}
        time.sleep(0.05)


@pytest.mark.slow
def test_no_call_fails_while_one_of_two_servers_is_killed_or_stopped(tmp_path: Path) -> None:
    write_spinning_model(tmp_path / "repository" / "spin")
    calls: dict[FaceName, Calls] = {name: Calls() for name in FACES}

    def start(name: str, stack: ExitStack, *options: str) -> RunningServer:
        scratch = tmp_path / name
        scratch.mkdir(exist_ok=True)
        (scratch / "ready.json").unlink(missing_ok=True)
        return stack.enter_context(
            started_server(tmp_path / "repository", scratch, *OPTIONS, *options)
        )

    with ExitStack() as stack:
        steady = start("steady", stack)
        first = start("first", stack)
        ports = [
            word
            for kind in ("http", "grpc")
            for word in (f"--{kind}-port", getattr(first, kind).rpartition(":")[2])
        ]
        with calling(lambda kind: [getattr(steady, kind), getattr(first, kind)], calls) as faces:
            grows(calls)

            for pid in ServerProcesses(first.process.pid).all():  # nothing is drained
                os.kill(pid, signal.SIGKILL)
            first.process.wait()
            grows(calls)

            again = start("again", stack, *ports)
            grows(calls)

            again.stop()
            grows(calls)

            counts = {name: face.counts() for name, face in faces.items()}

    for name, some in calls.items():
        assert (some.failed, some.wrong) == ([], []), name
        assert counts[name].retries > 0, name
        # What is at work when a server dies, and one try now and then of one that is away.
        assert counts[name].retries <= 0.1 * counts[name].requests + 10 + 60, name


@pytest.mark.slow
def test_no_call_fails_while_versions_change(tmp_path: Path) -> None:
    model = tmp_path / "repository" / "spin"
    write_spinning_model(model)
    (tmp_path / "scratch").mkdir()
    calls: dict[FaceName, Calls] = {name: Calls() for name in FACES}

    with (
        started_server(tmp_path / "repository", tmp_path / "scratch", *OPTIONS) as server,
        calling(lambda kind: [getattr(server, kind)], calls),
    ):
        for version in ("2", "3"):
            grows(calls)
            shutil.copytree(model / "1", model / version)
            admin = f"http://{server.admin}/admin/v1/models/spin/reload"
            new_connections.post(admin, json={"wait_s": 60}, timeout=90).raise_for_status()
            end = time.monotonic() + 60
            while any(version not in some.versions for some in calls.values()):
                assert time.monotonic() < end, calls
                time.sleep(0.05)

    for name, some in calls.items():
        assert (some.failed, some.wrong) == ([], []), name
        assert set(some.versions) == {"1", "2", "3"}, name
