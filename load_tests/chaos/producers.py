"""A trainer's process: started, killed, started again, and what its journal says."""

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch_testing.server_processes import wait_until

__all__ = ["Producer", "Published"]

_START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Published:
    """What was published.

    Attributes:
        version: of the newest good snapshot that was acknowledged.
        delta: of that snapshot.
        kinds: how many things of each kind: `good` ones that were acknowledged, and faults.
    """

    version: int
    delta: int
    kinds: Counter[str]


class Producer:
    """The one trainer of a model, see `chaos.producing`. For one thread.

    Args:
        folder: of the model.
        scratch: for its journal and what it says.
        seed: of what it draws; another one after each kill.
    """

    def __init__(self, folder: Path, scratch: Path, seed: int) -> None:
        self._folder = folder
        self._journal = scratch / "journal"
        self._log = scratch / "producer.log"
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it.

        Raises:
            TimeoutError: it published nothing.
        """
        good = self.published().kinds["good"]
        place = str(Path(__file__).parents[1])
        command = [sys.executable, "-m", "chaos.producing", str(self._folder), str(self._journal)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._seed)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=place,
            )
        self._seed += 1
        wait_until(
            lambda: self.published().kinds["good"] > good,
            _START_S,
            f"a delta is published; {self._said()}",
        )

    def kill(self) -> int:
        """Kill it; returns its process id.

        Raises:
            RuntimeError: it had ended by itself.
        """
        process = self._running()
        process.send_signal(signal.SIGKILL)
        self._end(process)
        return process.pid

    def finish(self) -> Published:
        """Have it publish a last good delta; returns all that was published.

        Raises:
            RuntimeError: it failed.
        """
        process = self._running()
        assert process.stdin is not None
        process.stdin.close()
        if process.wait(_START_S):
            raise RuntimeError(f"the trainer ended with {process.returncode}: {self._said()}")
        self._process = None
        return self.published()

    def close(self) -> None:
        """Kill it where it still runs."""
        if self._process is not None:
            self._process.kill()
            self._end(self._process)

    def published(self) -> Published:
        """Return what was published until now."""
        newest, kinds = (0, 0), Counter[str]()
        text = self._journal.read_text() if self._journal.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                kind, version, delta = line.split()
                kinds[kind] += 1
                if kind == "good":
                    newest = max(newest, (int(version), int(delta)))
        return Published(*newest, kinds)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the trainer ended: {self._said()}")
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        self._process = None

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
