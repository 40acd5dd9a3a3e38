"""Calls that threads take and an event loop answers, and readiness asked from threads."""

import asyncio
from collections.abc import Coroutine
from concurrent import futures
from typing import Any, Final, TypeVar

import grpc

from anabranch_server.administration import Administration
from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.admin_calls import LoopAnswer
from anabranch_server.rpc.faults import abort, internal_fault
from anabranch_server.rpc.metadata import read_metadata
from anabranch_wire.errors import AnabranchError, Cancelled, Unavailable

__all__ = ["LoopCall", "LoopReadiness"]

_READY_S: Final = 5.0

_Result = TypeVar("_Result")


class LoopCall:
    """Answers one request on an event loop, while a thread waits for it.

    A caller who leaves, or whose deadline passes, frees the thread; what was begun goes on.
    """

    def __init__(
        self,
        answer: LoopAnswer,
        loop: asyncio.AbstractEventLoop,
        request_ids: RequestIds,
        threads: futures.ThreadPoolExecutor,
    ) -> None:
        self._answer = answer
        self._loop = loop
        self._request_ids = request_ids
        self.experimental_thread_pool = threads  # grpcio's name

    def __call__(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        """Answer, or abort `call`."""
        request_id = self._request_ids.choose(read_metadata(call.invocation_metadata()).request_id)
        try:
            response = self._wait(body, call)
        except futures.CancelledError:
            abort(call, Cancelled("the caller left"), request_id)
        except AnabranchError as error:
            abort(call, error, request_id)
        except Exception:  # the edge of the handler thread
            abort(call, internal_fault(request_id), request_id)
        call.set_trailing_metadata((("x-request-id", request_id),))
        return response

    def _wait(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        answer = _begin(self._run(body), self._loop)

        def leave() -> None:
            answer.cancel()

        if not call.add_callback(leave):
            leave()
        return answer.result()

    async def _run(self, body: bytes) -> bytes:
        return await self._answer(body)


class LoopReadiness:
    """Readiness of an `Administration`, from any thread but its loop's."""

    def __init__(self, administration: Administration, loop: asyncio.AbstractEventLoop) -> None:
        self._administration = administration
        self._loop = loop

    def check_ready(self) -> None:
        """See `Readiness`; a loop that does not answer is not ready."""
        try:
            _begin(self._check(), self._loop).result(_READY_S)
        except (TimeoutError, futures.CancelledError):
            raise Unavailable("the supervisor does not answer") from None

    async def _check(self) -> None:
        self._administration.check_ready()


def _begin(
    coroutine: Coroutine[Any, Any, _Result], loop: asyncio.AbstractEventLoop
) -> "futures.Future[_Result]":
    """Run a coroutine on the loop.

    Raises:
        Unavailable: the loop has ended.
    """
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise Unavailable("the supervisor is ending") from None
