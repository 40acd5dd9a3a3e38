"""Reaping holds up nobody: it waits in a thread, and its callback comes by the poller."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from anabranch_server.launcher.places import End, Running
from anabranch_server.launcher.polling import Poller
from anabranch_server.launcher.reaping import Reaper
from anabranch_server.processes.spawning import Child

DEADLINE_S = 20.0


def child(code: str) -> Running:
    """Start a process that runs `code`."""
    started = subprocess.Popen([sys.executable, "-c", code])
    started.returncode = 0  # reaped by the reaper
    made = Child(started.pid, os.pidfd_open(started.pid))
    return Running(made, None, time.time(), time.monotonic())


def test_others_are_called_back_while_a_process_is_reaped() -> None:
    poller = Poller()
    told: list[End | bytes] = []
    reaper = Reaper(poller)
    running = child("import time; time.sleep(1000)")
    reaper.reap(running, told.append)  # it has not ended: the call waits

    receiver, sender = os.pipe()
    poller.add_reader(receiver, lambda: told.append(os.read(receiver, 1)))
    os.write(sender, b"x")
    poller.wait(DEADLINE_S)
    assert told == [b"x"]

    os.kill(running.child.pid, signal.SIGKILL)
    poller.wait(DEADLINE_S)
    assert [one.signal for one in told[1:] if isinstance(one, End)] == [signal.SIGKILL]
    for fd in (running.child.pidfd, receiver, sender):
        os.close(fd)


def test_ends_that_come_together_are_all_told_by_the_pollers_thread() -> None:
    poller = Poller()
    told: list[int | None] = []
    threads: set[int] = set()
    reaper = Reaper(poller)

    def tell(end: End) -> None:
        told.append(end.code)
        threads.add(threading.get_ident())

    processes = [child(f"raise SystemExit({code})") for code in range(5)]
    for running in processes:
        reaper.reap(running, tell)
    end_s = time.monotonic() + DEADLINE_S
    while len(told) < len(processes) and time.monotonic() < end_s:
        poller.wait(0.1)

    assert set(told) == set(range(5))
    assert threads == {threading.get_ident()}
    for running in processes:
        os.close(running.child.pidfd)


def test_without_room_for_a_thread_it_is_reaped_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    poller = Poller()
    told: list[int | None] = []
    reaper = Reaper(poller)
    running = child("raise SystemExit(3)")
    monkeypatch.setattr(threading.Thread, "start", refuse)

    reaper.reap(running, lambda end: told.append(end.code))
    poller.wait(DEADLINE_S)

    assert told == [3]
    os.close(running.child.pidfd)
