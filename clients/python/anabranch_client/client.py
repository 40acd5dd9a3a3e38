"""A blocking client of a server, or of several that serve the same models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from anabranch_client.addresses import read_addresses
from anabranch_client.calls import Call
from anabranch_client.flights import Transport
from anabranch_client.http_requests import HttpRequests
from anabranch_client.infer_bodies import Scores
from anabranch_client.options import ClientOptions
from anabranch_client.policy import CallCounts
from anabranch_client.rank_options import rank_options
from anabranch_client.rankings import Ranking
from anabranch_client.requests import ModelMetadata, RequestIds, Requests, checked_timeout, target
from anabranch_client.running import run
from anabranch_wire.errors import AnabranchError

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """A client that waits, over kept-alive connections that are opened on first use.

    Any thread may call it, and any number at once. Usable as a context manager.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            url: `http://HOST[:PORT][/PREFIX]` or `grpc://HOST[:PORT]`, or several of one protocol:
                endpoints that serve the same models.
            timeout_s: limit of every call that is given none of its own, in place of the options'.
            options: retries, hedging, and so on.

        Raises:
            InvalidInput: a URL has another form.
        """
        addresses = read_addresses(url)
        given = options or ClientOptions()
        self._options: Final = given if timeout_s is None else replace(given, timeout_s=timeout_s)
        self._policy: Final = self._options.policy(len(addresses))
        self._ids: Final = RequestIds()
        self._requests: Requests
        self._transport: Transport
        if addresses[0].scheme == "http":
            from anabranch_client.http_flights import HttpTransport

            self._requests = HttpRequests(addresses[0].prefix)
            self._transport = HttpTransport(addresses, self._options.connect_s)
        else:
            from anabranch_client.grpc_flights import GrpcTransport
            from anabranch_client.grpc_requests import GrpcRequests

            self._requests = GrpcRequests()
            self._transport = GrpcTransport(addresses)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens others."""
        self._transport.close()

    def rank(
        self,
        model: str,
        user: Mapping[str, object],
        candidates: object,
        *,
        top_k: int | None = None,
        outputs: Sequence[str] | None = None,
        explain: bool = False,
        version: str | int = "",
        timeout_s: float | None = None,
        priority: int = 0,
        routing_key: str | int | None = None,
        request_id: str | None = None,
    ) -> Ranking:
        """Order candidates for a user.

        Args:
            model: its name.
            user: feature -> value, or list of values; sent once for all candidates.
            candidates: feature -> column, or a table of pandas or Arrow. A column is a list, a
                NumPy array (two axes where a row is a vector), a Series or an Arrow array; where
                rows differ in their number of values a list of lists, an Arrow array of lists, or
                `(values, lengths)`, with weights `(values, lengths, weights)`.
            top_k: how many are wanted; None for all.
            outputs: heads to answer beside the score.
            explain: whether the answer says where its numbers come from.
            version: number or label; "" lets the server choose.
            timeout_s: how long the answer is of use: each attempt tells the server what is left
                of it. None is the client's own limit.
            priority: 1 is the highest; 0 lets the server choose.
            routing_key: requests of one key meet the same executor, where the model asks for that.
            request_id: under which the server's logs know the call; None makes one.

        Raises:
            InvalidInput: an argument is of another type, or the server refused the request.
            AnabranchError: any other kind the server answered with.
            DeadlineExceeded: the time limit passed.
            Unavailable: no server can be reached, or none has loaded the model.
        """
        asked = target(model, version, request_id or self._ids.request_id(), timeout_s)
        limit_s = checked_timeout(timeout_s, self._options.timeout_s)
        options = rank_options(top_k, outputs, explain, priority, routing_key)
        call = self._requests.rank(asked, user, candidates, options)
        return self._run(call, asked.request_id, limit_s)

    def score(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        *,
        outputs: Sequence[str] | None = None,
        version: str | int = "",
        timeout_s: float | None = None,
        request_id: str | None = None,
    ) -> Scores:
        """Run a model on arrays.

        Args:
            model: its name.
            inputs: input name -> NumPy array. The dtype says the datatype; strings, of fixed width
                or as objects, are BYTES, and ml_dtypes' bfloat16 is BF16.
            outputs: which outputs to return; None for all, in the model's order.
            version: number or label; "" lets the server choose.
            timeout_s: as for `rank`. Over HTTP, None leaves it to the server how long the answer
                is of use, and waits as long as the client's own limit.
            request_id: as for `rank`.

        Scoring changes nothing at the server, so it is sent again where that may help.

        Raises:
            InvalidInput: an argument is of another type, a dtype has no name in the protocol, or
                the server refused the request.
            AnabranchError: any other kind the server answered with.
            DeadlineExceeded: the time limit passed.
            Unavailable: no server can be reached, or none has loaded the model.
        """
        asked = target(model, version, request_id or self._ids.request_id(), timeout_s)
        limit_s = checked_timeout(timeout_s, self._options.timeout_s)
        call = self._requests.score(asked, inputs, outputs)
        return self._run(call, asked.request_id, limit_s)

    def metadata(self, model: str, *, version: str | int = "") -> ModelMetadata:
        """Return what a model takes and gives.

        Raises:
            InvalidInput: an argument is of another type.
            NotFound: there is no such model or version.
            AnabranchError: any other kind the server answered with.
            Unavailable: no server can be reached.
        """
        asked = target(model, version, self._ids.request_id(), None)
        call = self._requests.metadata(asked)
        return self._run(call, asked.request_id, self._options.timeout_s)

    def ready(self) -> bool:
        """Return whether a server can answer for every required model; which one is chosen as ever.

        Raises:
            AnabranchError: the answer was neither yes nor no.
            Unavailable: no server can be reached.
        """
        request_id = self._ids.request_id()
        call = self._requests.ready(request_id)
        return self._run(call, request_id, self._options.timeout_s)

    def counts(self) -> CallCounts:
        """Return what was sent until now. Any thread."""
        return self._policy.counts()

    def _run(self, call: Call[T], request_id: str, limit_s: float) -> T:
        try:
            return run(self._policy, self._transport, call, limit_s)
        except AnabranchError as error:
            error.add_note(f"request {request_id}")
            raise
