"""What a kill may cost, and whether that is all it cost. Values in, complaints out."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from chaos.numbers import number_of
from openloop import Answer

__all__ = ["Complaint", "Kill", "Known", "Rule", "Victim", "complaints"]

Victim = Literal["worker", "supervisor", "loader", "publisher"]
Rule = Literal["failed", "backwards", "mixed", "stale", "lost", "leaked"]

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
class Known:
    """What was current everywhere at some moment, so that nothing older may follow.

    Attributes:
        at_ns: `time.monotonic_ns` of that moment.
        version: of the model.
        marker: of its rows, or of the snapshot with its delta; 0 where there is none.
    """

    at_ns: int
    version: int
    marker: int = 0


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that must not happen.

    Attributes:
        rule: which rule was broken.
        words: how.
        answer: by what; None for what no answer shows.
    """

    rule: Rule
    words: str
    answer: Answer | None = None


def complaints(
    answers: Sequence[Answer],
    kills: Sequence[Kill],
    markers: frozenset[str] = frozenset(),
    known: Iterable[Known] = (),
    deltas: bool = False,
) -> Iterator[Complaint]:
    """Yield what broke a rule.

    - `failed`: only requests that a killed worker had accepted fail: resets of connections that
      were its own.
    - `mixed`: what an answer says of its version is what all of its numbers were computed by, and
      all of its rows have one marker.
    - `backwards`: no version and no marker goes backwards on one connection.
    - `stale`: nor on another one, for a request that was sent after that answer had come.
    - `lost`: nor behind what was known to be current everywhere when the request was sent.

    Args:
        answers: of a model whose scores are their version's number, with that header recorded
            first and bodies kept, in any order.
        kills: in any order.
        markers: outputs whose numbers are the marker of the rows instead.
        known: in any order.
        deltas: whether all numbers are that of the snapshot, and the delta's header is recorded
            second.
    """
    good = []
    for answer in sorted(answers, key=lambda one: one.sent_ns or 0):
        if answer.outcome == "ok":
            told, mixture = _updated(answer) if deltas else _told(answer, markers)
            if mixture:
                yield Complaint("mixed", mixture, answer)
            good.append((answer, told))
        elif not _may_fail(answer, kills):
            status = f" {answer.status}" if answer.status else ""
            yield Complaint("failed", f"{answer.outcome}{status} with no kill to blame", answer)
    yield from _going_back(good, list(known))


def _going_back(
    good: Sequence[tuple[Answer, Known]], known: Sequence[Known]
) -> Iterator[Complaint]:
    """Yield what is older than what was seen or known before; `good` in the order of sending."""
    on_connection: dict[int, Known] = {}
    anywhere = _Rising([one for _, one in good])
    promised = _Rising(known)
    for answer, told in good:
        assert answer.connection is not None
        assert answer.sent_ns is not None
        before = on_connection.get(answer.connection, told)
        on_connection[answer.connection] = _later(before, told)
        seen, due = anywhere.until(answer.sent_ns), promised.until(answer.sent_ns)
        bounds: tuple[tuple[Rule, Known], ...] = (
            ("backwards", before), ("lost", due), ("stale", seen),
        )  # fmt: skip
        for rule, bound in bounds:
            if told.version < bound.version:
                words = f"version {told.version} behind {bound.version}"
            elif told.marker < bound.marker:
                words = f"rows {told.marker} behind {bound.marker}"
            else:
                continue
            yield Complaint(rule, words, answer)
            break


class _Rising:
    """The highest that was known at a moment; moments are asked for in their order."""

    def __init__(self, known: Sequence[Known]) -> None:
        self._left = sorted(known, key=lambda one: one.at_ns, reverse=True)
        self._highest = Known(0, 0)

    def until(self, at_ns: int) -> Known:
        """Return what was known at `at_ns`."""
        while self._left and self._left[-1].at_ns <= at_ns:
            self._highest = _later(self._highest, self._left.pop())
        return self._highest


def _later(one: Known, other: Known) -> Known:
    return Known(
        max(one.at_ns, other.at_ns),
        max(one.version, other.version),
        max(one.marker, other.marker),
    )


def _told(answer: Answer, markers: frozenset[str]) -> tuple[Known, str]:
    """What an answer shows to be current, and what is wrong with that."""
    told = int(answer.recorded[0] or 0)
    versions, marks = _numbers(answer.body, markers)
    known = Known(answer.ended_ns, told, int(max(marks, default=0)))
    if versions == {told} and len(marks) <= 1:
        return known, ""
    words = f"says version {told}, computed by {_list(versions)}"
    return known, words + (f" from rows {_list(marks)}" if marks else "")


def _updated(answer: Answer) -> tuple[Known, str]:
    """As `_told`, where all numbers are that of the snapshot."""
    version, delta = (int(one or 0) for one in answer.recorded)
    number = number_of(version, delta)
    found, _ = _numbers(answer.body, frozenset())
    words = f"says version {version} and delta {delta}, computed by {_list(found)}"
    return Known(answer.ended_ns, version, number), "" if found == {number} else words


def _may_fail(answer: Answer, kills: Sequence[Kill]) -> bool:
    """Whether a killed worker had the request."""
    return answer.outcome == "reset" and any(
        kill.victim == "worker"
        and answer.local_port not in kill.spared_ports
        and answer.sent_ns is not None
        and answer.sent_ns - _MOMENT_NS <= kill.at_ns <= answer.ended_ns
        for kill in kills
    )


@lru_cache(maxsize=4096)
def _numbers(body: bytes, markers: frozenset[str]) -> tuple[frozenset[float], frozenset[float]]:
    """The different numbers of an answer in JSON: those of versions, and those of markers."""
    versions: set[float] = set()
    marks: set[float] = set()
    for output in json.loads(body)["outputs"]:
        (marks if output["name"] in markers else versions).update(output["data"])
    return frozenset(versions), frozenset(marks)


def _list(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in sorted(numbers))
