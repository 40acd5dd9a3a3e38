"""What a process is told at its start: one msgpack document in a memfd that it inherits.

`python -m anabranch_server.worker N` reads descriptor N. Descriptors named in the document are
inherited too; everything else is closed by exec.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from anabranch_server.config import ServeConfig

__all__ = ["Boot", "ListenAddress", "Role"]

Role = Literal["supervisor", "worker", "loader"]


class ListenAddress(msgspec.Struct, frozen=True):
    """An address that the launcher holds; workers listen beside it with SO_REUSEPORT."""

    host: str
    port: int


class Boot(msgspec.Struct, frozen=True):
    """What a process is told.

    Attributes:
        role: what it is to be.
        launch: random name of the running launcher, in hexadecimal digits.
        launcher_pid: for the ready file.
        launcher_started: `CLOCK_BOOTTIME` seconds of the launcher's start.
        config: all that `anabranch serve` was told.
        addresses: `http`, `grpc`, `metrics`, `admin`, `admin_grpc`.
        descriptors: by name, see docs/processes.md.
        index: number of the worker.
        incarnation: rises with every start of this process's kind and index, from 1.
        run_dir: for the ready file and what lives no longer than the launcher.
    """

    role: Role
    launch: str
    launcher_pid: int
    launcher_started: float
    config: ServeConfig
    addresses: Mapping[str, ListenAddress]
    descriptors: Mapping[str, int]
    run_dir: str
    index: int = 0
    incarnation: int = 1
