"""The launcher's event loop: descriptors and what to call for them, with signals as one of them."""

import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["CaughtSignals", "Poller", "caught_signals"]

Callback = Callable[[], None]


class Poller:
    """Calls back for descriptors that are ready; the `EventLoop` of channels. One thread.

    A descriptor has to be taken out before it is closed. Callbacks stand what is not there: a
    number may have been given to something else since the kernel reported it.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}

    def add_reader(self, fd: int, callback: Callback) -> None:
        """Call back whenever `fd` is readable or has ended."""
        self._readers[fd] = callback
        self._register(fd)

    def remove_reader(self, fd: int) -> None:
        """Call back no more."""
        if self._readers.pop(fd, None) is not None:
            self._register(fd)

    def add_writer(self, fd: int, callback: Callback) -> None:
        """Call back whenever `fd` is writable or broken."""
        self._writers[fd] = callback
        self._register(fd)

    def remove_writer(self, fd: int) -> None:
        """Call back no more."""
        if self._writers.pop(fd, None) is not None:
            self._register(fd)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until something is ready, for at most `timeout_s`, and call back for all of it."""
        for fd, events in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            if events & ~select.POLLOUT and (reader := self._readers.get(fd)):
                reader()
            if events & ~select.POLLIN and (writer := self._writers.get(fd)):
                writer()

    def _register(self, fd: int) -> None:
        events = select.POLLIN * (fd in self._readers) | select.POLLOUT * (fd in self._writers)
        if events:
            self._poll.register(fd, events)
        else:
            self._poll.unregister(fd)


@dataclass(frozen=True, slots=True)
class CaughtSignals:
    """Signals as something to poll for.

    Attributes:
        receiver: readable when a signal has come.
    """

    receiver: socket.socket

    def take(self) -> list[signal.Signals]:
        """Return the signals that have come, in their order."""
        try:
            return [signal.Signals(number) for number in self.receiver.recv(4096)]
        except BlockingIOError:
            return []


@contextmanager
def caught_signals(*numbers: signal.Signals) -> Iterator[CaughtSignals]:
    """Catch signals until the block ends. Main thread, as Python wants it."""
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        # Where the pair is full, enough signals wait in it already.
        woken_before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        handled_before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        try:
            yield CaughtSignals(receiver)
        finally:
            for number, handler in handled_before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken_before)
