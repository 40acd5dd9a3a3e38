"""The ready file: how whoever started a server learns where it listens, and that it answers."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from anabranch_wire.errors import Unavailable

__all__ = ["Ready", "read_ready", "remove_ready", "seconds_since_start", "write_ready"]


class Ready(msgspec.Struct, frozen=True):
    """What the file says; addresses are `host:port`.

    Attributes:
        pid: the process to signal.
        supervisor: the process that owns the model store.
        loader: the process that prepares versions, if one is at work.
        delta_loader: the process that prepares deltas, if one is at work.
        http: data door for HTTP.
        grpc: data door for gRPC.
        metrics: metrics and probes.
        admin: admin door.
        admin_grpc: admin door for gRPC; null while nothing is served there.
        workers: the processes that answer requests.
        models: model name -> snapshot that answers by default.
        seconds: from the start of the process to readiness.
    """

    pid: int
    supervisor: int
    loader: int | None
    http: str
    grpc: str
    metrics: str
    admin: str
    admin_grpc: str | None
    workers: tuple[int, ...]
    models: Mapping[str, str]
    seconds: float
    delta_loader: int | None = None


def write_ready(path: Path, ready: Ready) -> None:
    """Put the file in place in one step, so that no reader ever sees a part of it.

    Raises:
        Unavailable: it cannot be written, or something that is no file stands there.
    """
    if path.exists() and not path.is_file():  # a device would be replaced like a file
        raise Unavailable(f"ready file {path}: expected a file, or nothing yet")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(msgspec.json.encode(ready) + b"\n")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise Unavailable(f"ready file {path}: {error.strerror}") from None


def read_ready(path: Path) -> Ready | None:
    """Return what the file says; None where there is none that makes sense."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ready)
    except (OSError, msgspec.MsgspecError):
        return None


def remove_ready(path: Path) -> None:
    """Take the file away, if it is there; what is no file stays."""
    with suppress(OSError):
        if path.is_file():
            path.unlink()


def seconds_since_start() -> float:
    """Return how long this process has lived, interpreter start-up included."""
    # Field 22 counts clock ticks since boot; names in parentheses may hold anything.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
