"""One log line per request, for those who ask for it (`access_log`)."""

import logging
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.observing import ShedReason
from anabranch_runtime.requests import Ticket
from anabranch_runtime.spans import Spans
from anabranch_server.doors import CutReason, Protocol, RequestObserver
from anabranch_server.trace_context import TraceContext

__all__ = ["AccessLog"]

_log = logging.getLogger(__name__)

_OK: Final = "OK"
_MODEL_CHARACTERS: Final = 140


class AccessLog:
    """Logs what it passes on to another `RequestObserver`. Safe from any thread.

    Args:
        counters: told first.
        is_on: whether anything is logged now.
        spans: where requests are written down while a trace is recorded.

    Attributes:
        is_on: as given; may be changed at any time.
    """

    def __init__(
        self, counters: RequestObserver, *, is_on: bool = True, spans: Spans | None = None
    ) -> None:
        self._counters = counters
        self._spans = spans or Spans()
        self.is_on = is_on

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
        """Log a scored answer; see `RequestObserver`."""
        self._counters.scored(
            ticket, protocol, received, written, bytes_in, bytes_out, request_id, trace
        )
        if self._spans.is_on:
            _trace_scored(self._spans, ticket, protocol, received, written, request_id, trace)
        if not self.is_on:
            return
        snapshot = ticket.version.snapshot
        started = ticket.started or ticket.finished
        _log.info(
            _OK,
            extra={
                "event": "request",
                "request_id": request_id,
                **_named(trace),
                "protocol": protocol,
                "model": snapshot.model,
                "version": snapshot.version,
                "delta": snapshot.delta,
                "code": _OK,
                "rows": ticket.request.rows,
                "bytes_in": bytes_in,
                "bytes_out": bytes_out,
                "duration_ms": _ms(written - received),
                "decode_ms": _ms(ticket.submitted - received),
                "queue_ms": _ms(started - ticket.submitted),
                **_looked_up(ticket),
                "run_ms": _ms(ticket.finished - started - ticket.lookup_s),
                "encode_ms": _ms(written - ticket.finished),
                "batch_rows": ticket.batch_rows,
            },
        )

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
        """Log an answer that is an error; see `RequestObserver`."""
        self._counters.failed(model, protocol, code, duration_s, bytes_in, request_id, trace)
        if self._spans.is_on:
            now = time.monotonic()
            about = {"request_id": request_id, **_named(trace), "protocol": protocol, "code": code}
            about["model"] = model[:_MODEL_CHARACTERS]
            self._spans.add_passage("request", now - duration_s, now, about)
        if not self.is_on:
            return
        _log.info(
            code,
            extra={
                "event": "request",
                "request_id": request_id,
                **_named(trace),
                "protocol": protocol,
                "model": model[:_MODEL_CHARACTERS],
                "code": code,
                "bytes_in": bytes_in,
                "duration_ms": _ms(duration_s),
            },
        )

    def ranked(
        self, model: str, features: tuple[str, ...], counts: NDArray[np.int64], nan_scores: int
    ) -> None:
        """Pass it on: the request has a line of its own."""
        self._counters.ranked(model, features, counts, nan_scores)

    def shed(self, model: str, reason: ShedReason) -> None:
        """Pass it on: the refused request has a line of its own."""
        self._counters.shed(model, reason)

    def connections(self, protocol: Protocol, change: int) -> None:
        """Pass it on."""
        self._counters.connections(protocol, change)

    def connection_cut(self, protocol: Protocol, reason: CutReason) -> None:
        """Pass it on."""
        self._counters.connection_cut(protocol, reason)


def _trace_scored(
    spans: Spans,
    ticket: Ticket,
    protocol: Protocol,
    received: float,
    written: float,
    request_id: str,
    trace: TraceContext | None,
) -> None:
    """Write down where the time of a scored request went."""
    snapshot, finished = ticket.version.snapshot, ticket.finished
    steps = (
        ("decode", ticket.submitted),
        ("queue", ticket.started or finished),
        ("run", finished),
        ("encode", written),
    )
    about: dict[str, str | int] = {
        "request_id": request_id,
        **_named(trace),
        "protocol": protocol,
        "code": _OK,
        "model": snapshot.model,
        "version": snapshot.version,
        "delta": snapshot.delta,
        "rows": ticket.request.rows,
        "batch_rows": ticket.batch_rows,
    }
    spans.add_passage("request", received, written, about, steps)


def _looked_up(ticket: Ticket) -> dict[str, float]:
    return {} if ticket.version.source is None else {"lookup_ms": _ms(ticket.lookup_s)}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _named(trace: TraceContext | None) -> dict[str, str]:
    return {} if trace is None else {"trace_id": trace.trace_id, "span_id": trace.span_id}
