"""The demo's server: `anabranch serve` in a process of its own, on loopback."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from anabranch_server.ports import claim
from anabranch_server.ready import Ready
from anabranch_server.settings import SETTINGS
from anabranch_wire.errors import AnabranchError, Unavailable

__all__ = ["DemoServer", "demo_server"]

_HOST: Final = "127.0.0.1"
_PORTS: Final = ("http_port", "grpc_port", "metrics_port", "admin_port")
_START_S: Final = 120.0
_STOP_S: Final = 15.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A started server.

    Attributes:
        process: to wait for.
        ready: where it listens.
        taken: default ports that others have, so that free ones stand in for them.
    """

    process: "subprocess.Popen[bytes]"
    ready: Ready
    taken: tuple[int, ...]


@contextmanager
def demo_server(repository: Path) -> Iterator[DemoServer]:
    """Serve `repository` until the block ends; what goes wrong is said on standard error.

    Every port is the default one, or a free one where that is taken. Where others were quicker
    between that look and the server's start, it is started once more, on free ports only.

    Raises:
        Unavailable: the server ended, or was not ready in time.
    """
    defaults = {name: _default_port(name) for name in _PORTS}
    taken = _taken(defaults.values())
    ports = {name: 0 if port in taken else port for name, port in defaults.items()}
    with ExitStack() as started:
        try:
            process, ready = started.enter_context(_started(repository, ports))
        except Unavailable:
            late = _taken(set(ports.values()) - {0})
            if not late:
                raise
            taken |= late
            process, ready = started.enter_context(_started(repository, dict.fromkeys(_PORTS, 0)))
        yield DemoServer(process, ready, tuple(sorted(taken)))


@contextmanager
def _started(
    repository: Path, ports: Mapping[str, int]
) -> Iterator[tuple["subprocess.Popen[bytes]", Ready]]:
    """Serve `repository` on `ports`, by the names of their settings, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as scratch:
        ready_file = Path(scratch) / "ready.json"
        command = [sys.executable, "-m", "anabranch_server", "serve", str(repository)]
        options: dict[str, object] = {
            "host": _HOST,
            **ports,
            "admin_grpc_port": 0,
            "settle_s": 0,
            "drain_s": 1,
            "cache_dir": f"{scratch}/cache",
            "state_dir": f"{scratch}/state",
            "run_dir": f"{scratch}/run",
            "ready_file": ready_file,
            "log_format": "text",
            "log_level": "warning",
        }
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        # Settings of the surroundings are for real servers.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
        # Its log goes where this command talks to people: standard output is for results.
        # A session of its own: Ctrl-C comes to this command, which then stops the server once.
        process = subprocess.Popen(
            command, stdout=sys.stderr.fileno(), env=environ, start_new_session=True
        )
        try:
            yield process, _wait_ready(process, ready_file)
        finally:
            _stop(process)


def _default_port(setting: str) -> int:
    port = SETTINGS[setting]
    assert isinstance(port, int)
    return port


def _taken(ports: Collection[int]) -> set[int]:
    """Which of `ports` others have."""
    taken: set[int] = set()
    for port in ports:
        try:
            claim(_HOST, port, "demo").held.close()
        except AnabranchError:
            taken.add(port)
    return taken


def _wait_ready(process: "subprocess.Popen[bytes]", ready_file: Path) -> Ready:
    end_s = time.monotonic() + _START_S
    while not ready_file.exists():
        if process.poll() is not None:
            raise Unavailable(f"the server ended with exit code {process.returncode}")
        if time.monotonic() > end_s:
            raise Unavailable(f"the server was not ready in {_START_S:.0f} s")
        time.sleep(_POLL_S)
    return msgspec.json.decode(ready_file.read_bytes(), type=Ready)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
