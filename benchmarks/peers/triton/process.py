"""A Triton process that lives as long as a `with` block."""

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["TritonServer", "started_triton"]

_SERVE: Final = Path(__file__).with_name("serve")
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 40.0  # Triton itself waits up to 30 s for requests under way
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TritonServer:
    """Where a running Triton listens, as `host:port`.

    Attributes:
        http: Open Inference Protocol over HTTP.
        grpc: the same over gRPC.
        pid: its process.
    """

    http: str
    grpc: str
    pid: int

    @staticmethod
    def is_installed() -> bool:
        """Whether `make peers` was run here and its Triton can start."""
        return subprocess.run([_SERVE, "--check"], capture_output=True, check=False).returncode == 0


@contextmanager
def started_triton(
    graph: Path, folder: Path, *, core: int, batching: bool = True
) -> Iterator[TritonServer]:
    """Run Triton on the benchmarks' click model until the block ends.

    Args:
        graph: the model of `ctr_mlp.write`.
        folder: gets Triton's repository and `triton.log`.
        core: the core that all of it is pinned to.
        batching: whether Triton may join requests (with no added delay).

    Raises:
        RuntimeError: it did not become ready; carries the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_ports(3)
    log = folder / "triton.log"
    command = ["taskset", "-c", str(core), str(_SERVE), str(graph), str(port), str(folder)]
    switch = f"BATCHING={'on' if batching else 'off'}"
    with log.open("wb") as output:
        process = subprocess.Popen(["env", switch, *command], stdout=output, stderr=output)
    try:
        _wait_until_ready(process, port, log)
        yield TritonServer(f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if _is_ready(port):
            return
        time.sleep(_POLL_S)
    state = "still not ready" if process.poll() is None else f"ended with {process.returncode}"
    raise RuntimeError(f"Triton {state}: {log.read_text(errors='replace')[-2000:]}")


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/models/ctr/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def _free_ports(count: int) -> int:
    """First of `count` consecutive ports that were free a moment ago."""
    while True:
        with ExitStack() as held:
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for offset in range(1, count):
                    address = ("127.0.0.1", first + offset)
                    held.enter_context(socket.create_server(address))
            except (OSError, OverflowError):
                continue
        return int(first)
