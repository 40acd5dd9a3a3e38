"""`python -m chaos.producing FOLDER JOURNAL SEED`: a trainer that may be killed at any moment.

Publishes deltas and versions whose rows and weights are all the snapshot's number, and among them
what a broken trainer leaves: damaged deltas, documents that are none, folders of nobody. What it
was told is published stands in the journal before anything else is begun. It ends well, with a good
delta, when its standard input does.
"""

import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from anabranch_publish import DeltaDraft, Publisher
from anabranch_testing.forged_deltas import Damage, DeltaForge
from anabranch_testing.marked_rows import DIM, ROWS, TABLES, keys
from anabranch_testing.telling_tables import publish_telling_tables
from anabranch_wire.errors import InvalidInput
from chaos.numbers import number_of

__all__ = ["publish_numbered"]

_PAUSE_S: Final = (0.3, 1.0)
_FAULTS: Final = 0.15
"""Share of what is published that is broken."""

_CUMULATIVE: Final = 0.15
"""Share of good deltas that replace some before them."""

_DELTAS: Final = (12, 40)
"""Of a version, before the next one comes."""

_PRUNED_AFTER_S: Final = 10.0


def publish_numbered(folder: Path, version: int) -> None:
    """Publish a version whose rows and weights are the number of its snapshot without deltas."""
    publish_telling_tables(folder, version, number=number_of(version, 0))


def _truncated(attempt: Path, _: dict[str, Any]) -> None:
    path = attempt / "0000.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def _flipped(attempt: Path, _: dict[str, Any]) -> None:
    path = attempt / "dense.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _missing(attempt: Path, _: dict[str, Any]) -> None:
    (attempt / "0001.safetensors").unlink()


_DAMAGES: Final[dict[str, Damage]] = {
    "truncated": _truncated, "flipped": _flipped, "missing": _missing,
}  # fmt: skip


class _Trainer:
    """Publishes into one model's folder; the only one at a time."""

    def __init__(self, folder: Path, journal: Path, seed: int, stopping: threading.Event) -> None:
        self._folder = folder
        self._journal = journal
        self._draw = random.Random(seed)
        self._stopping = stopping
        self._version = 0
        self._left = 0
        self._replaces: int | None = None
        """The first delta that the next good one must replace; None: it need not."""

    def recover(self) -> None:
        """Go on where a trainer before this one was killed, whatever that left."""
        self._follow(max(self._versions()))
        with Publisher(self._folder, self._version) as publisher:
            while True:
                try:
                    newest = publisher.newest()
                    break
                except InvalidInput:  # garbage that was not taken away any more, or below strays
                    shutil.rmtree(self._deltas() / max(os.listdir(self._deltas()), key=_number))
        if newest is not None:
            self._left -= newest.sequence  # however often trainers are killed, versions come
            self._replaces = 1

    def go_on(self) -> None:
        """Publish one thing."""
        faults: list[Callable[[], None]] = [
            *(partial(self._bring_damaged, kind) for kind in _DAMAGES),
            self._bring_garbage,
            self._leave_strays,
        ]
        if self._left <= 0:
            self._publish_version()
        elif self._draw.random() < _FAULTS:
            self._draw.choice(faults)()
        else:
            # More of them may lie behind a damaged one: they wait for one that leads past it.
            self.publish_delta(repair=self._draw.random() < 0.5)
        self._left -= 1
        self.rest()

    def rest(self) -> None:
        """Do nothing for a while."""
        self._stopping.wait(self._draw.uniform(*_PAUSE_S))

    def publish_delta(self, repair: bool) -> None:
        """Publish a good delta.

        Args:
            repair: whether it must lead past damaged ones.
        """
        with Publisher(self._folder, self._version) as publisher:
            newest = publisher.newest()
            number = 1 if newest is None else newest.sequence + 1
            replaces = self._replaces if repair else None
            if replaces is None and number > 1 and self._draw.random() < _CUMULATIVE:
                replaces = self._draw.randint(1, number)
            draft = publisher.delta(step=number, replaces_from=replaces)
            _fill(number_of(self._version, number), draft)
            published = draft.publish()
            assert published == number, (published, number)
            self._note("good", number)
            if self._replaces is not None and replaces is not None and replaces <= self._replaces:
                self._replaces = None
                publisher.prune(age_s=_PRUNED_AFTER_S)

    def _publish_version(self) -> None:
        version = max(self._versions()) + 1
        publish_numbered(self._folder, version)
        self._follow(version)
        self._note("good", 0)

    def _bring_damaged(self, kind: str) -> None:
        with tempfile.TemporaryDirectory() as workshop:
            forge = DeltaForge(self._folder / str(self._version), Path(workshop))
            number = forge.make(partial(_fill, -1))
            self._replaces = min(self._replaces or number, number)
            self._note(kind, number)
            forge.bring(number, _DAMAGES[kind])

    def _bring_garbage(self) -> None:
        """A document that is none, until somebody takes it away."""
        with Publisher(self._folder, self._version) as publisher:
            newest = publisher.newest()
        number = 1 if newest is None else newest.sequence + 1
        self._note("garbage", number)
        folder = self._deltas() / f"{number:08}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "delta.json").write_bytes(self._draw.randbytes(200))
        self.rest()
        shutil.rmtree(folder)

    def _leave_strays(self) -> None:
        with Publisher(self._folder, self._version) as publisher:
            newest = publisher.newest()
        number = 1 if newest is None else newest.sequence + 1
        self._note("stray", number)
        for place in ("stray", f"{number:08}/{self._draw.randbytes(8).hex()}", f"{number + 5:08}"):
            folder = self._deltas() / place
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "0000.safetensors").write_bytes(self._draw.randbytes(200))

    def _follow(self, version: int) -> None:
        self._version = version
        self._left = self._draw.randint(*_DELTAS)
        self._replaces = None

    def _versions(self) -> list[int]:
        return [_number(name) for name in os.listdir(self._folder)]

    def _deltas(self) -> Path:
        return self._folder / str(self._version) / "deltas"

    def _note(self, kind: str, delta: int) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"{kind} {self._version} {delta}\n")
            journal.flush()
            os.fsync(journal.fileno())


def _fill(number: int, draft: DeltaDraft) -> None:
    """Give all rows and all weights a number."""
    for index, name in enumerate(TABLES):
        draft.upsert(name, keys(index), np.full((ROWS, DIM), number, np.float32))
    draft.dense({"number": np.full(1, number, np.float32)})


def _number(name: str) -> int:
    return int(name) if name.isdigit() else 0


def main() -> None:
    """Publish until standard input ends."""
    folder, journal, seed = sys.argv[1:]
    stopping = threading.Event()

    def watch() -> None:
        while os.read(0, 4096):  # not the buffer: its lock is wanted when the process ends
            pass
        stopping.set()

    threading.Thread(target=watch, daemon=True).start()
    trainer = _Trainer(Path(folder), Path(journal), int(seed), stopping)
    trainer.recover()
    trainer.publish_delta(repair=True)
    while not stopping.is_set():
        trainer.go_on()
    trainer.publish_delta(repair=True)


if __name__ == "__main__":
    main()
