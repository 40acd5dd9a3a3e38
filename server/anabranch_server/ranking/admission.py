"""From a ranking request to what a session group computes, and from that to a ranking.

Both doors come here with a request that differs in the form of its columns alone, and leave with an
answer that they only write down: so they cannot differ in anything else.
"""

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.missing_keys import all_missed
from anabranch_runtime.ranking.requests import Missed, Ranked, RankRequest
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext, Protocol
from anabranch_server.oip import CallOptions, deadline_for
from anabranch_server.ranking.explanations import Explanation, stages_ms
from anabranch_server.ranking.sizes import check_sizes
from anabranch_wire.errors import Internal, Unsupported

__all__ = ["AdmittedRanking", "RankAdmission", "RankAnswer", "answer_nothing", "ranking_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class AdmittedRanking:
    """A ranking request that may be computed.

    Attributes:
        served: computes it.
        rules: of that.
        prepared: its features.
        score: what the group is given; without rows there is nothing to compute.
        options: what came beside the request.
        is_sampled: whether its explanation goes to the log.
        missed: keys without rows, where somebody asks.
        explaining_s: spent on `missed`.
    """

    served: ServedVersion
    rules: RankingRules
    prepared: PreparedRanking
    score: ScoreRequest
    options: CallOptions
    is_sampled: bool = False
    missed: Mapping[str, Missed] = field(default_factory=dict)
    explaining_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RankAnswer:
    """What an answer says, whatever it is written in.

    Attributes:
        served: what it was computed by.
        request: what was asked.
        id: name of the candidate feature that is echoed.
        ranked: the order.
        reports_bad: whether candidates at fault are told, and not refused.
        explanation: where it was asked for.
    """

    served: ServedVersion
    request: RankRequest
    id: str
    ranked: Ranked
    reports_bad: bool
    explanation: Explanation | None


def ranking_of(served: ServedVersion) -> RankingRules:
    """Return the ranking of a version.

    Raises:
        Unsupported: it has none.
    """
    if served.ranking is None:
        raise Unsupported(
            f"model {served.snapshot.model!r} cannot rank: its model.yaml has no ranking section"
        )
    return served.ranking


class RankAdmission:
    """Admits ranking requests of one door, and completes them. Safe from any thread.

    Args:
        context: limits, observer, and how many explanations are logged.
        protocol: of the door.
    """

    def __init__(self, context: DoorContext, protocol: Protocol) -> None:
        limits = context.limits
        self._limits: Final = limits
        self._columns: Final = ColumnLimits(
            limits.max_rows, limits.max_elements, limits.max_string_bytes
        )
        self._observer = context.observer
        self._sample = context.explain_sample
        self._feature_log = context.feature_log
        self._protocol: Final = protocol

    def admit(
        self, request: RankRequest, served: ServedVersion, options: CallOptions
    ) -> AdmittedRanking:
        """Make the graph's inputs of a request.

        Raises:
            InvalidInput: it is not what the version ranks; names feature, row, found and expected.
            TooLarge: a limit is passed.
            Unsupported: the version has no ranking.
        """
        rules = ranking_of(served)
        check_sizes(request, self._limits)
        if request.routing_key is None and options.routing_key is not None:
            request = replace(request, routing_key=options.routing_key)
        prepared = rules.prepare(request, self._columns)
        deadline = deadline_for(
            options.received,
            served.group.settings.queue,
            options.timeout_s,
            request.timeout_s,
        )
        inputs, rows = served.rules.order(prepared.arrays) if prepared.rows else ((), 0)
        if rows != prepared.rows:
            raise Internal(f"{prepared.rows} candidates became {rows} rows")
        score = ScoreRequest(
            inputs,
            rows,
            tuple([served.output_index[name] for name in prepared.heads]),
            deadline,
            request.priority or options.priority or 0,
            prepared.routing_key,
        )
        is_sampled = self._sample > 0 and random.random() < self._sample
        if not (request.explain or is_sampled):
            return AdmittedRanking(served, rules, prepared, score, options)
        begun = time.monotonic()
        missed = all_missed(rules.plan, prepared, served.source) if rows else {}
        taken_s = time.monotonic() - begun
        return AdmittedRanking(served, rules, prepared, score, options, is_sampled, missed, taken_s)

    def complete(self, admitted: AdmittedRanking, ticket: Ticket) -> RankAnswer:
        """Return the answer to a request that was computed, and count it.

        Raises:
            InvalidInput: a head that the score is made of has not one number a row.
        """
        prepared, rules = admitted.prepared, admitted.rules
        assert ticket.outputs is not None
        outputs = dict(zip(prepared.heads, ticket.outputs, strict=True))
        ranked = rules.finish(prepared, outputs)
        served, plan = admitted.served, rules.plan
        if self._feature_log is not None:
            request_id = admitted.options.request_id
            self._feature_log.offer(request_id, served, rules, prepared, outputs)
        names = tuple([feature.name for feature in plan.features])
        self._observer.ranked(served.snapshot.model, names, prepared.counts, ranked.nan_scores)
        explanation = None
        if prepared.request.explain or admitted.is_sampled:
            explanation = _explanation(admitted, ticket)
            if admitted.is_sampled:
                self._note(admitted, ranked, explanation)
        return RankAnswer(
            served,
            prepared.request,
            plan.id,
            ranked,
            plan.report_bad,
            explanation if prepared.request.explain else None,
        )

    def _note(self, admitted: AdmittedRanking, ranked: Ranked, explanation: Explanation) -> None:
        """Log an explanation: names and numbers of features, never their values or keys."""
        snapshot = admitted.served.snapshot
        _log.info(
            "ranking explained",
            extra={
                "event": "rank_explained",
                "request_id": admitted.options.request_id,
                "protocol": self._protocol,
                "model": snapshot.model,
                "version": snapshot.version,
                "delta": snapshot.delta,
                "step": explanation.freshness.step,
                "age_s": explanation.age_s,
                "rows": admitted.prepared.rows,
                "missed": {name: one.keys for name, one in explanation.missed.items()},
                "defaulted": list(explanation.defaulted),
                "bad_candidates": len(ranked.bad),
                "nan_scores": ranked.nan_scores,
                "stages_ms": dict(explanation.stages_ms),
            },
        )


def answer_nothing(ticket: Ticket) -> None:
    """Finish the ticket of a request without candidates, in place of a group."""
    version = ticket.version
    specs = [version.outputs[index] for index in ticket.request.outputs]
    ticket.outputs = tuple(
        [np.empty((0, *(max(size, 0) for size in spec.shape[1:])), spec.dtype) for spec in specs]
    )
    ticket.submitted = ticket.started = ticket.finished = time.monotonic()


def _explanation(admitted: AdmittedRanking, ticket: Ticket) -> Explanation:
    freshness = admitted.served.freshness
    event_time = freshness.event_time
    return Explanation(
        freshness,
        None if event_time is None else round(max(time.time() - event_time, 0.0), 3),
        admitted.missed,
        admitted.prepared.defaulted,
        stages_ms(ticket, admitted.options.received, admitted.explaining_s),
    )
