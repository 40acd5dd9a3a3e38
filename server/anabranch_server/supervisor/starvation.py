"""Whether a process of the lowest priority gets a processor when it wants one."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["Starvation"]

_WANTING: Final = frozenset("RT")
"""States of threads that compute or would; a stopped one gets nowhere just the same."""
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")


class Starvation:
    """Adds up how long a process wanted a processor in vain. One thread.

    Waiting for files is no such time: a process that reads from a slow disk is not starved.

    Args:
        pid: the process.
        proc: where the system tells of processes.

    Attributes:
        missed_s: the sum.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self.missed_s = 0.0
        self._folder = proc / str(pid)
        self._looked_s: float | None = None
        self._used_s = 0.0
        self._wants = False

    def look(self, now_s: float) -> float:
        """Look at it again, and return `missed_s`.

        Args:
            now_s: monotonic clock.
        """
        with suppress(OSError, ValueError, IndexError):  # it ends: that is noticed elsewhere
            used_s = sum(map(int, _fields(self._folder)[11:13])) * _TICK_S
            tasks = (self._folder / "task").iterdir()
            wants = any(_fields(task)[0] in _WANTING for task in tasks)
            if self._looked_s is not None and wants and self._wants:
                self.missed_s += max(0.0, now_s - self._looked_s - (used_s - self._used_s))
            self._looked_s, self._used_s, self._wants = now_s, used_s, wants
        return self.missed_s


def _fields(folder: Path) -> list[str]:
    """The fields of a `stat` file behind the name, which may hold anything; see proc(5)."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
