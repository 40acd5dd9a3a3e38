"""Has snapshots compared by a process of its own: one at a time, and not for ever.

Tables may have gigabytes, and the event loop that asks looks after a server.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from anabranch_server.describe.differences import DifferenceView
from anabranch_server.differences.child import ComparisonFailed
from anabranch_server.processes.failures import error_of
from anabranch_wire.errors import Conflict, DeadlineExceeded, Unavailable
from anabranch_wire.snapshots import Snapshot

__all__ = ["Comparer"]

_MODULE: Final = "anabranch_server.differences"
_MOST_S: Final = 300.0


class Comparer:
    """Belongs to one event loop.

    Args:
        most_s: how long a comparison may take.
    """

    def __init__(self, most_s: float = _MOST_S) -> None:
        self._most_s = most_s
        self._is_busy = False

    async def compare(self, folder: Path, before: str, after: str) -> DifferenceView:
        """Return what differs between two snapshots of the model in a folder.

        Cancelling it ends the process.

        Args:
            folder: of the model.
            before: the first snapshot, such as `42`.
            after: the second one, such as `42+17`.

        Raises:
            InvalidInput: one is no snapshot.
            NotFound: one is not in the repository.
            Conflict: another comparison is at work.
            DeadlineExceeded: it takes too long.
            AnabranchError: files cannot be read.
        """
        for one in (before, after):
            Snapshot.parse(folder.name, one)
        if self._is_busy:
            raise Conflict("another comparison is at work; ask again when it has ended")
        self._is_busy = True
        try:
            return await self._run(str(folder), before, after)
        finally:
            self._is_busy = False

    async def _run(self, *arguments: str) -> DifferenceView:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(self._most_s):
                told, _ = await child.communicate()
        except TimeoutError:
            raise DeadlineExceeded(
                f"comparing took more than {self._most_s:.0f} s; use anabranch diff, which has no "
                "limit"
            ) from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode == 0:
            return msgspec.json.decode(told, type=DifferenceView)
        try:
            failed = msgspec.json.decode(told, type=ComparisonFailed)
        except msgspec.DecodeError:
            raise Unavailable(
                f"comparing ended with exit code {child.returncode}; the server's log may say why"
            ) from None
        raise error_of(failed.kind, failed.error)
