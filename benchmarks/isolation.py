"""S10: no batch mixes versions, whatever is killed: 3 readers, full rewrites, kill -9 at random.

This script is the launcher of the server in small: it starts the writer and the readers, hands
generations from the one to the others, keeps leases until a death is certain (pidfd), and starts
whoever died. It kills readers and the writer at random moments. A new writer never goes on in the
old one's memory: it builds a fresh generation from the base and the committed change, and hands it
over. Roles and what a batch must give: `isolation_roles.py`.

Ends after 1,000,000 batches, or after `--minutes`. 100 MB of memory.
"""

import argparse
import os
import random
import select
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import rows as results
from anabranch_runtime.shared_words import SharedWords
from isolation_roles import (
    BATCHES,
    COMMITTED,
    CURRENT,
    GENERATION_SHIFT,
    LEASE,
    NO_LEASE,
    READERS,
    TORN,
    WORDS,
    Generations,
    Go,
    Tables,
    read,
    write,
)
from store_children import Channel, Closed, die_with_parent

__all__ = ["Launcher"]

_BATCHES: Final = 1_000_000
_ENOUGH: Final = f">= {_BATCHES}"
_READER_LIVES_S: Final = (0.02, 1.0)
_WRITER_LIVES_S: Final = (0.02, 2.0)
_POLL_MS: Final = 20
_WRITER: Final = -1


@dataclass(frozen=True, slots=True)
class _Process:
    """A forked role."""

    pid: int
    pidfd: int
    channel: Channel
    dies_at: float


@dataclass(slots=True)
class Launcher:
    """Starts, hands over, kills; see the module.

    Attributes:
        tables: what is read.
        words: those of `isolation_roles`.
        chance: of lives.
        reader_kills: so far.
        writer_kills: so far.
        generations: made so far, the last one's number.
    """

    tables: Tables
    words: SharedWords
    chance: random.Random
    reader_kills: int = 0
    writer_kills: int = 0
    generations: int = 0
    _fds: dict[int, int] = field(default_factory=dict)
    _readers: dict[int, _Process] = field(default_factory=dict)
    _writer: _Process | None = None
    _missing: set[int] | None = None
    """Readers that have not mapped the generation to be published; None where there is none."""

    def run(self, batches: int, seconds: float) -> None:
        """Run until so many batches were checked, at most so long; everybody is dead afterwards."""
        for index in range(READERS):
            self.words.store(LEASE + index, NO_LEASE)
        end = time.monotonic() + seconds
        try:
            while self.total(BATCHES) < batches and time.monotonic() < end:
                self._start_missing()
                self._handle()
                self._kill_due()
        finally:
            for process in filter(None, [*self._readers.values(), self._writer]):
                _end(process)
            for fd in self._fds.values():
                os.close(fd)

    def total(self, first: int) -> int:
        """Sum of a word over all readers."""
        return sum(self.words.load(first + index) for index in range(READERS))

    def _start_missing(self) -> None:
        if self._writer is None:
            self.generations += 1
            number = self.generations  # of this writer's first one
            self._writer = self._fork(
                lambda channel: write(channel, self.words, self.tables, number), _WRITER_LIVES_S
            )
        if not self.words.load(CURRENT):
            return
        for index in set(range(READERS)) - self._readers.keys():
            # It can read nothing older than what is published now.
            self.words.store(LEASE + index, self.words.load(CURRENT))
            reader = self._fork(_reader(self.words, self.tables, index), _READER_LIVES_S)
            reader.channel.send(Generations(tuple(self._fds)), *self._fds.values())
            self._readers[index] = reader

    def _fork(self, role: Callable[[Channel], None], lives_s: tuple[float, float]) -> _Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            _be(role, Channel(theirs))
        theirs.close()
        dies_at = time.monotonic() + self.chance.uniform(*lives_s)
        return _Process(pid, os.pidfd_open(pid), Channel(ours), dies_at)

    def _handle(self) -> None:
        """Take messages; a process that ends without being killed ends the run."""
        poll = select.poll()
        everybody = {_WRITER: self._writer, **self._readers}
        waited = {one.channel.fileno(): (who, one) for who, one in everybody.items() if one}
        for fd in waited:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(_POLL_MS):
            who, process = waited[fd]
            try:
                message, fds = process.channel.receive(Generations)
            except Closed:
                raise RuntimeError("a process ended by itself; its words are above") from None
            if who == _WRITER:
                self._prepare(message, fds)
            elif self._missing is not None and message.numbers[-1] == self.generations:
                self._missing.discard(who)
        self._go_if_all_mapped()

    def _prepare(self, made: Generations, fds: list[int]) -> None:
        """Hand a generation of the writer to all readers."""
        [self.generations] = made.numbers
        self._fds[self.generations] = fds[0]
        self._missing = set(self._readers)
        for reader in self._readers.values():
            reader.channel.send(made, *fds)

    def _go_if_all_mapped(self) -> None:
        """Let the writer publish; a reader that has died meanwhile is not waited for."""
        if self._missing is not None and not self._missing and self._writer is not None:
            self._writer.channel.send(Go(self.generations))
            self._missing = None

    def _kill_due(self) -> None:
        now = time.monotonic()
        for index, reader in list(self._readers.items()):
            if reader.dies_at <= now:
                del self._readers[index]
                _end(reader)
                self.words.store(LEASE + index, NO_LEASE)  # its death is certain
                self.reader_kills += 1
                if self._missing is not None:
                    self._missing.discard(index)
        if self._writer is not None and self._writer.dies_at <= now:
            _end(self._writer)
            self._writer, self._missing = None, None
            self.writer_kills += 1
        self._drop_unread()

    def _drop_unread(self) -> None:
        """Close generations that were replaced, and those whose writer died before the switch."""
        published = self.words.load(CURRENT) >> GENERATION_SHIFT
        for number in list(self._fds):
            aborted = number > published and self._missing is None and self._writer is None
            if number < published or aborted:
                os.close(self._fds.pop(number))


def main() -> None:
    """Run, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="seconds; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--minutes", type=float, default=20.0, help="longest time")
    options = parser.parse_args()
    batches, seconds = (5000, 60.0) if options.quick else (_BATCHES, 60 * options.minutes)
    with tempfile.TemporaryDirectory() as scratch:
        rows = 2000 if options.quick else 20_000
        tables = Tables(Path(scratch) / "segment", rows, rows // 10, 500, 50)
        tables.build()
        words = SharedWords.create(WORDS)
        launcher = Launcher(tables, words, random.Random(time.time_ns()))
        begin = time.monotonic()
        launcher.run(batches, seconds)
        measured = _rows(launcher, time.monotonic() - begin)
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def _rows(launcher: Launcher, seconds: float) -> list[results.Row]:
    tables = launcher.tables
    what = (
        f"{READERS} reader processes, {3 * tables.batch_rows} ids a batch, a hashed and a "
        f"dense-id table of {tables.rows:,} rows rewritten over and over, readers and writer "
        "killed at random"
    )
    figures = {
        "rewrites": float(launcher.words.load(COMMITTED)),
        "generations": float(launcher.generations),
        "readers killed": float(launcher.reader_kills),
        "writers killed": float(launcher.writer_kills),
        "seconds": seconds,
    }
    counts = (("torn or mixed batches", TORN, "= 0"), ("batches checked", BATCHES, _ENOUGH))
    return [
        results.measured(
            "S10",
            f"{name}: {what}",
            [float(launcher.total(first))],
            goal=goal,
            unit="batches",
            yardstick="every number of every batch against its version",
            figures=figures,
            distributions=("anabranch", "numpy"),
        )
        for name, first, goal in counts
    ]


def _reader(words: SharedWords, tables: Tables, index: int) -> Callable[[Channel], None]:
    return lambda channel: read(channel, words, tables, index)


def _be(role: Callable[[Channel], None], channel: Channel) -> NoReturn:
    """Be a forked role; never return into the launcher's code, and never outlive it."""
    die_with_parent()
    try:
        role(channel)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _end(process: _Process) -> None:
    """SIGKILL; return when the kernel says that it is dead.

    Raises:
        RuntimeError: it had ended by itself.
    """
    signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
    os.close(process.pidfd)
    process.channel.close()
    if status != -signal.SIGKILL:
        raise RuntimeError(f"a process ended with {status} by itself; its words are above")


if __name__ == "__main__":
    main()
