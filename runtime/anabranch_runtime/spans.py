"""What took how long, written down for some seconds when somebody asks for it.

Off otherwise: whoever has something to write looks at `Spans.is_on` first. Times are those of
`time.monotonic()`, which all processes of a machine share.
"""

import threading
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

__all__ = ["Passage", "Recorded", "Span", "Spans"]

T = TypeVar("T")

_SPANS: Final = 50_000
_PASSAGES: Final = 20_000


class Span(msgspec.Struct, frozen=True, gc=False):
    """Something that one thread did; spans of a thread lie beside or inside each other.

    Attributes:
        name: what was done.
        thread: the system's number of the thread.
        thread_name: its name.
        begin: when it began.
        end: when it was over.
        args: more about it.
    """

    name: str
    thread: int
    thread_name: str
    begin: float
    end: float
    args: Mapping[str, str | int]


class Passage(msgspec.Struct, frozen=True, gc=False):
    """Something that went on beside others like it, on any thread or none.

    Attributes:
        name: what it was.
        begin: when it began.
        end: when it was over.
        steps: names of its parts with their ends; each begins where the one before ended.
        args: more about it.
    """

    name: str
    begin: float
    end: float
    steps: tuple[tuple[str, float], ...]
    args: Mapping[str, str | int]


class Recorded(msgspec.Struct, frozen=True):
    """What was written down, in the order of the ends."""

    spans: tuple[Span, ...] = ()
    passages: tuple[Passage, ...] = ()


class Spans:
    """The newest spans and passages since `begin`, so many of each. Safe from any thread.

    Args:
        spans: kept at most.
        passages: kept at most.

    Attributes:
        is_on: whether anything is kept; `begin` and `end` set it.
    """

    def __init__(self, spans: int = _SPANS, passages: int = _PASSAGES) -> None:
        self.is_on = False
        self._spans: deque[Span] = deque(maxlen=spans)
        self._passages: deque[Passage] = deque(maxlen=passages)

    def begin(self) -> None:
        """Keep what is added from now on, and nothing of before."""
        self._spans.clear()
        self._passages.clear()
        self.is_on = True

    def end(self) -> Recorded:
        """Keep nothing any more; return what was added since `begin`."""
        self.is_on = False
        return Recorded(_drained(self._spans), _drained(self._passages))

    def add(self, name: str, begin: float, end: float, args: Mapping[str, str | int]) -> None:
        """Add what the calling thread did."""
        if self.is_on:
            thread = threading.current_thread()
            number = thread.native_id or 0
            self._spans.append(Span(name, number, thread.name, begin, end, args))

    def add_passage(
        self,
        name: str,
        begin: float,
        end: float,
        args: Mapping[str, str | int],
        steps: tuple[tuple[str, float], ...] = (),
    ) -> None:
        """Add what belongs to no thread; see `Passage`."""
        if self.is_on:
            self._passages.append(Passage(name, begin, end, steps, args))


def _drained(ring: deque[T]) -> tuple[T, ...]:
    """Take everything out; another thread may be adding its last."""
    taken: list[T] = []
    while ring:
        taken.append(ring.popleft())
    return tuple(taken)
