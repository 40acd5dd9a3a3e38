"""What a process is told at its start: one msgpack document in a memfd that it inherits.

`python -m anabranch_server.worker N` reads descriptor N. Descriptors named in the document are
inherited too; everything else is closed by exec.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from anabranch_server.config import ServeConfig
from anabranch_server.processes.packets import sealed_memory
from anabranch_wire.errors import InvalidInput

__all__ = ["Boot", "ListenAddress", "Role", "read_boot", "write_boot"]

Role = Literal["supervisor", "worker", "loader"]


class ListenAddress(msgspec.Struct, frozen=True):
    """An address that the launcher holds; workers listen beside it with SO_REUSEPORT."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
        index: number of the worker; of a loader, 0 for versions and 1 for deltas.
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


def write_boot(boot: Boot) -> int:
    """Return a sealed memfd with the document, which the caller closes.

    Raises:
        OSError: there is no memory, or no descriptor.
    """
    return sealed_memory("anabranch-boot", msgspec.msgpack.encode(boot, enc_hook=_to_plain))


def read_boot(argv: Sequence[str]) -> Boot:
    """Return what this process was told, and keep its descriptors from processes it starts.

    Args:
        argv: `sys.argv`: the program and the number of a descriptor, which is closed.

    Raises:
        InvalidInput: there is no such document; such a process is only started by the server.
    """
    try:
        (number,) = argv[1:]
        with os.fdopen(int(number), "rb") as document:
            document.seek(0)
            boot = _decoder.decode(document.read())
        for fd in boot.descriptors.values():
            os.set_inheritable(fd, False)
    except (ValueError, OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"expected the number of a descriptor with a boot document ({error}): "
            "this is a part of a server, start one with `anabranch serve DIR`"
        ) from None
    return boot


def _to_plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent to a process")


def _from_plain(kind: type, value: object) -> object:
    if kind is object:  # of `ServeConfig.shown`: plain data as it is
        return value
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"{kind.__name__} cannot be sent to a process")


_decoder: Final = msgspec.msgpack.Decoder(Boot, dec_hook=_from_plain)
