"""The client's four faces, each called from threads that wait."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from anabranch_client import AsyncClient, CallCounts, Client, ClientOptions, Ranking, Scores

__all__ = ["FACES", "Face", "FaceName", "open_face"]

FaceName = Literal["http", "grpc", "async_http", "async_grpc"]
FACES: Final[tuple[FaceName, ...]] = ("http", "grpc", "async_http", "async_grpc")


class Face:
    """A client. Any thread may call it.

    Args:
        client: blocking, or of `loop`.
        loop: runs in another thread.
    """

    def __init__(
        self, client: Client | AsyncClient, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._client = client
        self._loop = loop

    def rank(self, *args: Any, **options: Any) -> Ranking:
        """Call `rank`."""
        ranking = self.call("rank", *args, **options)
        assert isinstance(ranking, Ranking)
        return ranking

    def score(self, *args: Any, **options: Any) -> Scores:
        """Call `score`."""
        scores = self.call("score", *args, **options)
        assert isinstance(scores, Scores)
        return scores

    def call(self, name: str, *args: Any, **options: Any) -> object:
        """Call a method by its name and wait for what comes of it."""
        result = getattr(self._client, name)(*args, **options)
        if self._loop is None:
            return result
        return asyncio.run_coroutine_threadsafe(result, self._loop).result(120)

    def counts(self) -> CallCounts:
        """Return what the client sent."""
        return self._client.counts()


@contextmanager
def open_face(
    name: FaceName,
    addresses: Callable[[str], Sequence[str]],
    options: ClientOptions | None = None,
) -> Iterator[Face]:
    """Open a client until the block ends.

    Args:
        name: which.
        addresses: "http" or "grpc" -> `host:port` of each server.
        options: of the client.
    """
    scheme = name.removeprefix("async_")
    urls = [f"{scheme}://{address}" for address in addresses(scheme)]
    if name == scheme:
        with Client(urls, options=options) as client:
            yield Face(client, None)
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="async-face")
    thread.start()
    try:
        asynchronous = AsyncClient(urls, options=options)
        yield Face(asynchronous, loop)
        asyncio.run_coroutine_threadsafe(asynchronous.close(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
