"""Whether a connection may be read from: ASGI and the hot path each have a say."""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["ReadGate"]


class ReadGate(FlowControl):
    """uvicorn's flow control, with a second hand on the reading side.

    Reading goes on only while neither has paused it. The writing side is uvicorn's as it is.

    Attributes:
        is_held: the hot path has paused reading.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.is_held = False

    def hold(self) -> None:
        """Pause reading for the hot path."""
        if not self.is_held:
            self.is_held = True
            if not self.read_paused:
                self._transport.pause_reading()

    def release(self) -> None:
        """Undo `hold`."""
        if self.is_held:
            self.is_held = False
            if not self.read_paused:
                self._transport.resume_reading()

    def pause_reading(self) -> None:
        """Pause reading for ASGI."""
        if not self.read_paused:
            self.read_paused = True
            if not self.is_held:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        if self.read_paused:
            self.read_paused = False
            if not self.is_held:
                self._transport.resume_reading()
