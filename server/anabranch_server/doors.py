"""What every front door is given: catalog, limits, the probes' view, and who counts requests."""

from dataclasses import dataclass, field
from typing import Literal
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.observing import ShedReason
from anabranch_runtime.requests import Ticket
from anabranch_server.clients import Clients
from anabranch_server.feature_log import FeatureLog
from anabranch_server.lifecycle import Lifecycle
from anabranch_server.limits import Limits
from anabranch_server.trace_context import TraceContext

__all__ = ["CutReason", "DoorContext", "Protocol", "RequestObserver"]

Protocol = Literal["oip_http", "oip_grpc", "tfs_http", "tfs_grpc", "eas", "rank_http", "rank_grpc"]
"""Value of the `protocol` label of metrics and access lines."""

CutReason = Literal["slow_reader", "slow_writer", "idle", "too_large"]
"""Why the server closes a connection that its caller would have kept."""


class RequestObserver(Interface):
    """Counts requests. Safe from any thread; must cost about a microsecond and never raise."""

    def scored(
        self,
        ticket: Ticket,
        protocol: Protocol,
        received: float,
        written: float,
        bytes_in: int,
        bytes_out: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """A request was answered with scores.

        Args:
            ticket: finished, with its times.
            protocol: door it came through.
            received: `time.monotonic()` when its last byte came.
            written: `time.monotonic()` when the answer was handed to the transport.
            bytes_in: body bytes as received.
            bytes_out: body bytes of the answer.
            request_id: as echoed.
            trace: which trace the caller counts it to.
        """

    def failed(
        self,
        model: str,
        protocol: Protocol,
        code: str,
        duration_s: float,
        bytes_in: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """A request was answered with an error.

        Args:
            model: name as sent; counted under `_unknown` unless the catalog has it.
            protocol: door it came through.
            code: gRPC status name, such as `INVALID_ARGUMENT`.
            duration_s: from its last received byte to the answer handed to the transport.
            bytes_in: body bytes as received.
            request_id: as echoed.
            trace: which trace the caller counts it to.
        """

    def ranked(
        self, model: str, features: tuple[str, ...], counts: NDArray[np.int64], nan_scores: int
    ) -> None:
        """A ranking request came to an order; it is told of as scored too.

        Args:
            model: name of the model.
            features: names of its features.
            counts: (features, 5), what happened to the values of each; columns as in
                `anabranch_runtime.ranking.feature_program.COUNTS`.
            nan_scores: candidates whose score is no number.
        """

    def shed(self, model: str, reason: ShedReason) -> None:
        """A request was refused at the door for `reason`; it is told of as failed too.

        Args:
            model: name as sent, as of `failed`.
            reason: why.
        """

    def connections(self, protocol: Protocol, change: int) -> None:
        """A connection was opened (+1) or closed (-1)."""

    def connection_cut(self, protocol: Protocol, reason: CutReason) -> None:
        """The server closed a connection for `reason`."""


@dataclass(frozen=True, slots=True)
class DoorContext:
    """Everything a front door may use. Shared, immutable; its parts are safe from any thread.

    Attributes:
        catalog: resolves models to served versions.
        limits: checked before allocating.
        lifecycle: probes and draining.
        observer: counts requests.
        server_version: package version, named in server metadata.
        clients: who is connected.
        explain_sample: share of ranking requests whose explanation is logged, 0 to 1.
        feature_log: is offered every ranking that was answered; None where there is none.
    """

    catalog: Catalog
    limits: Limits
    lifecycle: Lifecycle
    observer: RequestObserver
    server_version: str
    clients: Clients = field(default_factory=Clients)
    explain_sample: float = 0.0
    feature_log: FeatureLog | None = None
