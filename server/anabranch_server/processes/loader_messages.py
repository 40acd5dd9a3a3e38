"""What the supervisor and its loaders say to each other; see `messages.py`."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from anabranch_server.processes.message import Message
from anabranch_server.processes.plans import VersionPlan

__all__ = [
    "PRIORITIES",
    "Applied",
    "ApplyDeltas",
    "DeltaFault",
    "Found",
    "FromLoader",
    "LoadVersion",
    "Phase",
    "Priority",
    "Progress",
    "Refused",
    "ToLoader",
]


Priority = Literal["idle", "low", "normal"]
"""Of a loader: only where nobody wants the processor, a part of it (`give_way`), as all others."""

PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""From the lowest to the highest."""


class LoadVersion(Message, frozen=True):
    """Verify a version and find out all that is needed to serve it.

    Attributes:
        number: names the request in the answers.
        model: model name.
        version: its number.
        model_path: the model's folder.
        version_path: the version's folder.
        serving_yaml: text of the model's serving.yaml; empty where it has none.
        priority: "idle" where requests are being served; a loader cannot go back up.
        available_bytes: memory that the version may take; None where that is not known.
        in_use: graph files and segments that workers may still be told of.
        since: what was made or used in the cache folder at that time or later stays, seconds since
            1970: another loader may be about to tell of it. None where there is no other.
    """

    number: int
    model: str
    version: int
    model_path: str
    version_path: str
    serving_yaml: str
    priority: Priority
    available_bytes: int | None
    in_use: tuple[str, ...] = ()
    since: float | None = None


class ApplyDeltas(Message, frozen=True):
    """Find out what the next deltas of a version make of it; answered by `Applied` or `Refused`.

    Attributes:
        number: names the request in the answers.
        model: model name.
        model_path: the model's folder.
        version_path: the version's folder.
        serving_yaml: text of the model's serving.yaml; empty where it has none.
        plan: the version as deltas up to `plan.delta` have made it.
        upto: the newest delta to apply.
        priority: "idle" where requests are being served; a loader cannot go back up.
        available_bytes: memory that is left; None where that is not known.
        in_use: files of the cache folder that processes may still be told of.
        since: as of `LoadVersion`.
    """

    number: int
    model: str
    model_path: str
    version_path: str
    serving_yaml: str
    plan: VersionPlan
    upto: int
    priority: Priority
    available_bytes: int | None
    in_use: tuple[str, ...] = ()
    since: float | None = None


Phase = Literal[
    "fetching", "verifying", "importing", "optimizing", "building", "warming", "comparing",
    "switching", "draining", "freeing",
]  # fmt: skip


class Progress(Message, frozen=True):
    """How far a request has come."""

    number: int
    phase: Phase
    bytes_done: int = 0
    bytes_total: int = 0


class Found(Message, frozen=True):
    """The version is good.

    Attributes:
        phase_ms: how long each phase took.
    """

    number: int
    version: VersionPlan
    phase_ms: Mapping[str, float]


class DeltaFault(msgspec.Struct, frozen=True):
    """Why a delta cannot be applied.

    Attributes:
        sequence: its number; of a gap, the number that is missing.
        kind: class name of the error tree, such as `Corrupt`.
        reason: of the closed set of reasons of failures, such as `gap`.
        error: its message.
    """

    sequence: int
    kind: str
    reason: str
    error: str


class Applied(Message, frozen=True):
    """As far as deltas could be applied, they were.

    Attributes:
        version: at the newest one; the same as it was asked for where none could be.
        phase_ms: how long each phase took.
        upserts: rows that they bring, each delta counted by itself.
        deletes: rows that they take out.
        bytes: of their files.
        fault: why the next one is not applied; None where nothing is left.
    """

    number: int
    version: VersionPlan
    phase_ms: Mapping[str, float]
    upserts: int = 0
    deletes: int = 0
    bytes: int = 0
    fault: DeltaFault | None = None


class Refused(Message, frozen=True):
    """The version is refused.

    Attributes:
        kind: class name of the error tree, such as `Corrupt`.
        error: its message.
        tables: bytes of its tables, where it is refused for want of memory; None else.
    """

    number: int
    kind: str
    error: str
    tables: int | None = None


ToLoader = LoadVersion | ApplyDeltas
FromLoader = Progress | Found | Applied | Refused
