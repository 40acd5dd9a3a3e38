"""What the processes of a server hold when all is quiet, and whether that is more than before."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch_testing.server_processes import (
    Role,
    ServerProcesses,
    owned_ports,
    resources_of,
)
from chaos.judging import Complaint

__all__ = ["Held", "folder_bytes", "held_by", "leaks", "overflowing"]

_DESCRIPTORS: Final = 6
"""That a process may have more than before: something is always being said or asked."""

_BYTES: Final = 48 << 20
"""Memory that it may have more than before: allocators keep what was free at some moment."""

_FOLDER_BYTES: Final = 64 << 20
"""By which a cache folder may grow: files of versions that passed stay there for a while."""

_LASTING: Final[tuple[Role, ...]] = ("launcher", "supervisor", "worker")


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds, or the most that one of a role does.

    Attributes:
        descriptors: its descriptors without connections of clients.
        memory_bytes: without pages of files, shared ones counted in parts.
        generations: of rows that it has mapped, different ones.
        segments: of tables that it has mapped, different ones.
    """

    descriptors: int
    memory_bytes: int
    generations: int
    segments: int


def held_by(processes: ServerProcesses, server_port: int) -> dict[Role, Held]:
    """Return the most that a process of each lasting role holds."""
    found: dict[Role, Held] = {}
    for pid, role in processes.all().items():
        held = _held(pid, server_port) if role in _LASTING else None
        if held is not None:
            found[role] = _most(held, found.get(role, held))
    return found


def leaks(
    before: Mapping[Role, Held], after: Mapping[Role, Held], generations: int
) -> Iterator[Complaint]:
    """Yield what is held in the end and should not be.

    Args:
        before: of a server that has changed its version a few times.
        after: of the same one when all is quiet.
        generations: and segments that a process may have mapped then.
    """
    for role, now in after.items():
        if now.generations > generations or now.segments > generations:
            yield Complaint(
                "leaked",
                f"{role}: {now.generations} generations and {now.segments} segments are mapped",
            )
        then = before.get(role)
        if then is None:
            continue
        if now.descriptors > then.descriptors + _DESCRIPTORS:
            yield Complaint(
                "leaked", f"{role}: {then.descriptors} -> {now.descriptors} descriptors"
            )
        if now.memory_bytes > then.memory_bytes + _BYTES:
            grown = f"{then.memory_bytes >> 20} -> {now.memory_bytes >> 20} MiB"
            yield Complaint("leaked", f"{role}: {grown} of memory")


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder; those that go meanwhile count or not."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(place) / name).stat().st_size
    return total


def overflowing(before: int, after: int) -> Iterator[Complaint]:
    """Yield a complaint of a cache folder that has grown by too many bytes."""
    if after > before + _FOLDER_BYTES:
        yield Complaint("leaked", f"cache folder: {before >> 20} -> {after >> 20} MiB")


def _held(pid: int, server_port: int) -> Held | None:
    resources = resources_of(pid)
    if resources is None:
        return None
    connections = len(owned_ports(pid, server_port))
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        return Held(
            resources.descriptors - connections,
            resources.held_bytes,
            _mapped(lines, "memfd:anabranch-generation"),
            _mapped(lines, "memfd:anabranch-segment"),
        )
    return None


def _mapped(lines: Iterable[str], name: str) -> int:
    return len({line.split(maxsplit=5)[4] for line in lines if name in line})


def _most(one: Held, other: Held) -> Held:
    return Held(
        max(one.descriptors, other.descriptors),
        max(one.memory_bytes, other.memory_bytes),
        max(one.generations, other.generations),
        max(one.segments, other.segments),
    )
