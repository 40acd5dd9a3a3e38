"""A server that is started again on what another one left: nothing that it served is forgotten."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from chaos.judging import Complaint, Known, complaints
from chaos.killing import HEADERS
from chaos.numbers import number_of
from chaos.producers import Published
from chaos.stages import restarted_server
from chaos.subjects import Subject, requests_of
from openloop import Answer, HttpTransport, Plan, measure

__all__ = ["forgotten"]

_REQUESTS: Final = 50


def forgotten(
    subject: Subject,
    folder: Path,
    published: Published,
    *options: str,
    prefix: Sequence[str] = (),
) -> Iterator[Complaint]:
    """Yield what is wrong with the first answers after a restart.

    Args:
        subject: a model with deltas.
        folder: of a `staged_server` that has ended.
        published: nothing older may be served from the first answer on.
        options: that it was started with.
        prefix: likewise.
    """
    answers: list[Answer] = []
    with restarted_server(subject, folder, *options, prefix=prefix) as server:
        plan = Plan(rate=200, seconds=60, connections=4, timeout_s=20.0, max_requests=_REQUESTS)
        transport = HttpTransport(server.http, HEADERS, keep_bodies=True)
        measure(plan, transport, requests_of(subject, server.http), answers.append)
    number = number_of(published.version, published.delta)
    known = [Known(0, published.version, number)]
    yield from complaints(answers, (), known=known, deltas=True)
