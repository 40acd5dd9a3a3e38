import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch_server.config import ServeConfig
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.spawning import Child, spawn
from anabranch_server.settings import read_settings, serve_config

REPORTER = "anabranch_testing.processes.reporter"


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    config: ServeConfig = serve_config(read_settings({}, {}, None), str(tmp_path), cores=4)
    return Boot("loader", "ab", 1, 1.0, config, {}, {}, str(tmp_path))


@contextmanager
def started(boot: Boot, module: str = REPORTER) -> Iterator[tuple[Child, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            child = spawn(module, boot, {"supervisor": theirs.fileno()})
        try:
            yield child, ours
        finally:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
            os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)
            os.close(child.pidfd)


def report(peer: socket.socket) -> dict[str, str]:
    peer.settimeout(30)
    return dict(line.split("=", 1) for line in peer.recv(65536).decode().splitlines())


def test_a_process_has_its_descriptors_and_no_others(boot: Boot) -> None:
    inheritable = os.dup(0)
    os.set_inheritable(inheritable, True)
    with started(boot) as (_, peer):
        told = report(peer)
    os.close(inheritable)

    assert told["role"] == "loader"
    assert told["descriptors"] == f"supervisor:{told['own']}"
    assert told["open"] == f"0,1,2,{told['own']}"


def test_it_runs_in_a_group_of_its_own_and_in_our_session(boot: Boot) -> None:
    with started(boot) as (child, peer):
        report(peer)
        assert os.getpgid(child.pid) == child.pid
        assert os.getsid(child.pid) == os.getsid(0)


def test_modules_are_not_looked_for_in_the_working_folder(
    boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)

    with started(boot) as (_, peer):
        assert report(peer)["role"] == "loader"


def test_its_end_makes_the_pidfd_readable(boot: Boot) -> None:
    with started(boot) as (child, peer):
        report(peer)
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        assert not poll.poll(0)

        peer.close()

        assert poll.poll(30_000)
        ended = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)
