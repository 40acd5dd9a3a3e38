"""What every part of `lookup.py` is told: how large, how often, on which cores."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import rows as results

__all__ = ["DISTRIBUTIONS", "Run"]

DISTRIBUTIONS: Final = ("anabranch", "numpy")

Size = TypeVar("Size", int, float, tuple[int, ...])


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the script.

    Attributes:
        scratch: folder of segments, on the disk that is measured.
        is_quick: a smoke run.
        readers_core: of the measuring thread.
        writers_core: of a process beside it; the same one where there is only one.
    """

    scratch: Path
    is_quick: bool
    readers_core: int
    writers_core: int

    @classmethod
    def here(cls, scratch: Path, *, is_quick: bool) -> "Run":
        """A run on the first and the last core that this process may use."""
        cores = sorted(os.sched_getaffinity(0))
        return cls(scratch, is_quick, cores[0], cores[-1])

    @property
    def rounds(self) -> int:
        """Interleaved rounds."""
        return 2 if self.is_quick else results.ROUNDS

    def size(self, full: Size, quick: Size) -> Size:
        """Return `full`, or `quick` in a smoke run."""
        return quick if self.is_quick else full
