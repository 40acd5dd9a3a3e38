"""Keeps captures of graphs and everything else that talks to the driver apart.

A capture in CUDA's global mode, as ONNX Runtime begins it, fails where any other thread of the
process allocates, frees, or asks for an event meanwhile, and the other call fails with it. So a
capture waits until every executor has come to rest, and none begins while it lasts.

An executor passes its own `GateMember` around each stretch of work on the device. That is one
uncontended lock; only a capture looks at those of all the others.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CaptureGate", "GateMember"]


class GateMember:
    """The pass of one thread at a time; made by `CaptureGate.join`.

    Stretches of work may overlap: the device is at rest when as many have left as have entered.
    """

    __slots__ = ("_depth", "_gate", "_lock")

    def __init__(self, gate: "CaptureGate") -> None:
        self._gate = gate
        self._lock = threading.Lock()
        self._depth = 0

    def enter(self) -> None:
        """Begin to work on a device; waits while there is a capture."""
        if not self._depth:
            if self._gate.is_wanted:
                self._gate.let_pass()
            self._lock.acquire()
        self._depth += 1

    def leave(self) -> None:
        """End what `enter` began; the device has answered."""
        self._depth -= 1
        if not self._depth:
            self._lock.release()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work on a device within a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def hold(self) -> None:
        """Wait until its work has left, and let none begin; for a capture."""
        self._lock.acquire()

    def release(self) -> None:
        """Let work begin again."""
        self._lock.release()


class CaptureGate:
    """One for a process: captures are alone in it, everything else may be at work together.

    Attributes:
        is_wanted: whether a capture is there or waits.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._captures = threading.Lock()
        self._members_lock = threading.Lock()
        self._members: list[GateMember] = []

    def join(self) -> GateMember:
        """Return a pass for one more thread."""
        member = GateMember(self)
        # Whoever captures now has not asked this member to rest.
        with self._captures, self._members_lock:
            self._members.append(member)
        return member

    def part(self, member: GateMember) -> None:
        """Take a pass back; nothing of it is at work."""
        with self._members_lock:
            self._members.remove(member)

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Be alone within a block. The calling thread has no work of its own on a device."""
        with self._captures:
            self.is_wanted = True
            with self._members_lock:
                members = list(self._members)
            held: list[GateMember] = []
            try:
                for member in members:
                    member.hold()
                    held.append(member)
                yield
            finally:
                self.is_wanted = False
                for member in held:
                    member.release()

    def let_pass(self) -> None:
        """Wait until no capture is there or waits."""
        with self._captures:
            pass
