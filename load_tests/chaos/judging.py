"""What a kill may cost, and whether that is all it cost. Values in, complaints out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from openloop import Answer

__all__ = ["Complaint", "Kill", "Victim", "complaints"]

Victim = Literal["worker", "supervisor", "loader"]

_MOMENT_NS: Final = 1_000_000_000
"""How long after a kill its resets may be seen: signals and sockets take their time."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One process that was killed.

    Attributes:
        victim: what it was.
        pid: which one.
        at_ns: `time.monotonic_ns` just before the signal.
        spared_ports: clients' ports of the connections that other workers held at that moment. A
            port that nobody held was on its way to a worker, perhaps to the victim.
    """

    victim: Victim
    pid: int
    at_ns: int
    spared_ports: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that must not happen.

    Attributes:
        rule: which rule was broken.
        answer: by what.
        words: how.
    """

    rule: Literal["failed", "backwards", "mixed"]
    answer: Answer
    words: str


def complaints(answers: Sequence[Answer], kills: Sequence[Kill]) -> Iterator[Complaint]:
    """Yield what broke a rule.

    - Only requests that a killed worker had accepted fail: resets of connections that were its own.
    - No version goes backwards on one connection.
    - What an answer says of its version is what it was computed by.

    Args:
        answers: of a model whose scores are their version's number, with that header recorded
            first and bodies kept, in any order.
        kills: in any order.
    """
    newest: dict[int, int] = {}
    for answer in sorted(answers, key=lambda one: one.sent_ns or 0):
        if answer.outcome != "ok":
            if not _may_fail(answer, kills):
                status = f" {answer.status}" if answer.status else ""
                yield Complaint("failed", answer, f"{answer.outcome}{status} with no kill to blame")
            continue
        told = int(answer.recorded[0] or 0)
        computed = _score(answer.body)
        if computed != told:
            yield Complaint("mixed", answer, f"says version {told}, scores {computed}")
        assert answer.connection is not None
        before = newest.setdefault(answer.connection, told)
        if told < before:
            yield Complaint("backwards", answer, f"version {told} behind {before}")
        newest[answer.connection] = max(before, told)


def _may_fail(answer: Answer, kills: Sequence[Kill]) -> bool:
    """Whether a killed worker had the request."""
    return answer.outcome == "reset" and any(
        kill.victim == "worker"
        and answer.local_port not in kill.spared_ports
        and answer.sent_ns is not None
        and answer.sent_ns - _MOMENT_NS <= kill.at_ns <= answer.ended_ns
        for kill in kills
    )


def _score(body: bytes) -> float:
    """The first score of an answer in JSON."""
    start = body.index(b'"data":[') + 8
    end = min(body.index(mark, start) for mark in (b",", b"]") if mark in body[start:])
    return float(body[start:end])
