"""What survives a restart of the server, one file for each model in `state_dir`.

A file is replaced as a whole: written beside, synced, renamed, folder synced. What cannot be read
is set aside and said, and the model starts without it.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from anabranch_wire.errors import Unavailable

__all__ = ["Hold", "ModelRecord", "Records", "ServedRecord"]

_log = logging.getLogger(__name__)

_FORMAT: Final = 1
_MAX_BYTES: Final = 16 * 1024 * 1024


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what a file holds: a key that nobody knows is damage."""


class Hold(_Part, frozen=True):
    """What a rollback keeps a model at until it is unpinned.

    Attributes:
        version: version that answers by default.
        delta: delta of it.
    """

    version: int
    delta: int = 0


class ServedRecord(_Part, frozen=True):
    """A version in memory.

    Attributes:
        version: its number.
        delta: newest applied delta.
        identity: of its files.
        fingerprint: of its files as they lay there.
    """

    version: int
    delta: int
    identity: str
    fingerprint: str


class ModelRecord(_Part, frozen=True, kw_only=True):
    """What is remembered of one model.

    Attributes:
        format: of the file.
        model: its name.
        hold: the rollback in force.
        labels: set by the admin API, label -> version.
        launch: the launcher that ran then; what follows counts for it alone.
        epoch: number of the last state that was decided on.
        committed: when, seconds since 1970.
        versions: what that state has in memory.
        history: versions that were served before, most recent first.
        answered: versions that answered by default, most recent first: now, and before.
        loads: versions that were asked for beyond the policy.
        unloads: versions that were taken out although the policy has them.
        unloaded: whether the whole model was.
        check: digest of everything else.
    """

    format: Literal[1] = 1
    model: str
    hold: Hold | None = None
    labels: Mapping[str, int] = msgspec.field(default_factory=dict)
    launch: str = ""
    epoch: int = 0
    committed: float | None = None
    versions: tuple[ServedRecord, ...] = ()
    history: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    unloads: tuple[int, ...] = ()
    unloaded: bool = False
    check: str = ""


class _Header(msgspec.Struct):
    format: int


class Records:
    """The files in one folder. `write` may be called from any thread, for one model at a time.

    Args:
        folder: is created where it is missing, with mode 0700.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, model: str) -> ModelRecord | None:
        """Return what is remembered of a model; None where that is nothing.

        A file that is damaged, or newer than this release, is set aside.
        """
        path = self._path(model)
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            _report(model, f"cannot be read: {error.strerror}")
            return None
        try:
            if msgspec.json.decode(data, type=_Header).format > _FORMAT:
                self._set_aside(path, model, "is of a newer release")
                return None
            record = msgspec.json.decode(data, type=ModelRecord)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._set_aside(path, model, f"is damaged: {error}")
            return None
        if record.model != model or record.check != _digest(data):
            self._set_aside(path, model, "is damaged: it does not match its own digest")
            return None
        return record

    def write(self, record: ModelRecord) -> None:
        """Replace what is remembered of a model; durable when this returns. Blocks.

        Raises:
            Unavailable: it cannot be written; what was there before still is.
        """
        check = _digest(msgspec.json.encode(record))
        data = msgspec.json.encode(msgspec.structs.replace(record, check=check))
        path = self._path(record.model)
        beside = path.with_name(f".{path.name}.new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(beside, flags, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            beside.rename(path)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise Unavailable(
                f"state_dir: what model {record.model!r} is to serve cannot be written: "
                f"{error.strerror}"
            ) from None

    def _path(self, model: str) -> Path:
        return self._folder / f"{model}.json"

    def _set_aside(self, path: Path, model: str, reason: str) -> None:
        with suppress(OSError):
            path.replace(path.with_name(f"{path.name}.aside"))
        _report(model, f"{reason}; it was renamed to {path.name}.aside")


def _digest(data: bytes) -> str:
    """Digest of what a document says beside its own digest.

    It is taken of the document, not of what this release makes of it: one that an older release
    wrote lacks the fields that came later.
    """
    document = msgspec.json.decode(data, type=dict[str, object])
    document.pop("check", None)
    return hashlib.sha256(msgspec.json.encode(document, order="deterministic")).hexdigest()


def _report(model: str, reason: str) -> None:
    _log.error(
        "model %s: what was remembered of holds and labels %s; it starts without them",
        model,
        reason,
        extra={"event": "record_unreadable", "model": model},
    )
