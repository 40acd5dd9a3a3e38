"""Servers started as a user starts them: the command line in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunningServer", "started_server"]


@dataclass(frozen=True)
class RunningServer:
    """A started `anabranch serve`.

    Attributes:
        process: the one that was started.
        ready: the content of its ready file.
        log: where its standard output and error go.
    """

    process: subprocess.Popen[bytes]
    ready: dict[str, object]
    log: Path

    @property
    def http(self) -> str:
        """`host:port` of the HTTP door."""
        return str(self.ready["http"])

    @property
    def grpc(self) -> str:
        """`host:port` of the gRPC door."""
        return str(self.ready["grpc"])

    @property
    def metrics(self) -> str:
        """`host:port` of the metrics port."""
        return str(self.ready["metrics"])

    @property
    def admin(self) -> str:
        """`host:port` of the admin port."""
        return str(self.ready["admin"])

    @property
    def workers(self) -> list[int]:
        """Processes that answered requests when the server became ready."""
        pids = self.ready["workers"]
        assert isinstance(pids, list)
        return pids

    def stop(self, timeout_s: float = 30.0) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


@contextmanager
def started_server(
    repository: Path | str,
    scratch: Path,
    *options: str,
    prefix: Sequence[str] = (),
    module: str = "anabranch_server",
    timeout_s: float = 120.0,
) -> Iterator[RunningServer]:
    """Serve `repository` on free loopback ports until the block ends.

    Args:
        repository: the model folder, or a URL.
        scratch: an empty folder for run, state and cache folders and the log.
        options: more `serve` options.
        prefix: words before the command, such as `taskset -c 0`.
        module: what stands for the command.
        timeout_s: how long the server may take to be ready.
    """
    ready_file = scratch / "ready.json"
    log = scratch / "server.log"
    command = [
        *prefix, sys.executable, "-m", module, "serve", str(repository),
        "--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0",
        "--admin-port", "0", "--admin-grpc-port", "0",
        "--run-dir", str(scratch / "run"), "--state-dir", str(scratch / "state"),
        "--cache-dir", str(scratch / "cache"), "--ready-file", str(ready_file),
        "--drain-s", "0.2", *options,
    ]  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            _wait_ready(process, ready_file, log, timeout_s)
            yield RunningServer(process, json.loads(ready_file.read_bytes()), log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait_ready(
    process: subprocess.Popen[bytes], ready_file: Path, log: Path, timeout_s: float
) -> None:
    end = time.monotonic() + timeout_s
    while not ready_file.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the server exited with {process.returncode}:\n{_tail(log)}")
        if time.monotonic() > end:
            raise TimeoutError(f"the server was not ready in {timeout_s} s:\n{_tail(log)}")
        time.sleep(0.02)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]
