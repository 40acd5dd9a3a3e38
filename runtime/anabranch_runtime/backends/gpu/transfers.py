"""How the inputs of a batch get onto a device, and its outputs back.

On one stream with the graph (vivo calls it MergeStream), everything follows in the order it was
enqueued, and nothing has to be waited for but the last event. With streams of their own, copies of
one batch may overlap the graph of another, and events keep the order within a batch.
"""

from typing import Literal, Protocol

from cuda.core import Buffer, Device, Event, Stream, StreamOptions

__all__ = ["MergedTransfers", "SeparateTransfers", "StreamsMode", "Transfers", "open_transfers"]

StreamsMode = Literal["merge", "separate"]


class Transfers(Protocol):
    """Copies around launches on one executor's stream."""

    def bring(self, source: Buffer, target: Buffer) -> None:
        """Enqueue a copy to the device; what is launched after it reads what it brought."""

    def fetch(self, source: Buffer, target: Buffer, done: Event) -> None:
        """Enqueue a copy from the device after what was launched, and record `done` behind it."""

    def sync(self) -> None:
        """Wait for all copies."""

    def close(self) -> None:
        """Free what it has of its own."""


class MergedTransfers:
    """Copies on the executor's own stream; see `Transfers`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def bring(self, source: Buffer, target: Buffer) -> None:
        """Enqueue a copy to the device."""
        source.copy_to(target, stream=self._stream)

    def fetch(self, source: Buffer, target: Buffer, done: Event) -> None:
        """Enqueue a copy from the device, and record `done` behind it."""
        source.copy_to(target, stream=self._stream)
        self._stream.record(done)

    def sync(self) -> None:
        """Wait for the stream."""
        self._stream.sync()

    def close(self) -> None:
        """Nothing: the stream is the executor's."""


class SeparateTransfers:
    """Copies on a stream for each direction; see `Transfers`.

    A batch's memory is its own until it is answered, so a copy waits for nothing before it but the
    launches that it belongs to.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._stream = stream
        options = StreamOptions(nonblocking=True)
        self._in = device.create_stream(options=options)
        try:
            self._out = device.create_stream(options=options)
        except BaseException:
            self._in.close()
            raise

    def bring(self, source: Buffer, target: Buffer) -> None:
        """Enqueue a copy to the device; the executor's stream waits for it."""
        source.copy_to(target, stream=self._in)
        self._stream.wait(self._in)

    def fetch(self, source: Buffer, target: Buffer, done: Event) -> None:
        """Enqueue a copy from the device, and record `done` behind it."""
        self._out.wait(self._stream)
        source.copy_to(target, stream=self._out)
        self._out.record(done)

    def sync(self) -> None:
        """Wait for both directions."""
        self._in.sync()
        self._stream.sync()
        self._out.sync()

    def close(self) -> None:
        """Free the streams."""
        self._in.close()
        self._out.close()


def open_transfers(mode: StreamsMode, device: Device, stream: Stream) -> Transfers:
    """Return the copies of an executor, as serving.yaml calls them."""
    if mode == "merge":
        return MergedTransfers(stream)
    return SeparateTransfers(device, stream)
