"""From plans, which cross processes, to the values that a session group and a catalog take."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast, get_args

from anabranch_runtime.catalog import ServingState
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.settings import (
    BatchSettings,
    GroupSettings,
    QueueSettings,
    Select,
)
from anabranch_server.processes.planned_models import snapshot, tensor_specs
from anabranch_server.processes.plans import (
    GroupPlan,
    QueuePlan,
    StatePlan,
    VersionPlan,
)
from anabranch_wire.errors import Internal

__all__ = [
    "freshness",
    "group_settings",
    "queue_settings",
    "ranking_rules",
    "serving_state",
]


def freshness(version: VersionPlan) -> Freshness:
    """Return how new a version is."""
    return Freshness(version.step, version.event_time)


def ranking_rules(version: VersionPlan) -> RankingRules | None:
    """Return how candidates are ranked; None where a version has no ranking. Reads its files.

    Raises:
        Corrupt, Unavailable: a file is damaged or cannot be read.
        Internal: the plan contradicts itself.
    """
    if version.ranking is None:
        return None
    try:
        return RankingRules(version.ranking, tensor_specs(version.outputs))
    except ValueError as fault:
        raise Internal(f"plan of {snapshot(version)}: ranking: {fault}") from None


def queue_settings(queue: QueuePlan) -> QueueSettings:
    """Return what may wait.

    Raises:
        Internal: the plan has a bound that is none.
    """
    try:
        return QueueSettings(
            max_requests=queue.max_requests,
            max_rows=queue.max_rows,
            default_timeout_s=queue.default_timeout_s,
            max_timeout_s=queue.max_timeout_s,
            priority_levels=queue.priority_levels,
        )
    except ValueError as fault:
        raise Internal(f"plan of a queue: {fault}") from None


def group_settings(
    group: GroupPlan, queue: QueuePlan, worker: int, max_repeated_bytes: int
) -> GroupSettings:
    """Return how the executors of one worker are run.

    Args:
        group: for all workers.
        queue: of each worker.
        worker: index of the worker, which picks its executors' processors.
        max_repeated_bytes: see `GroupSettings`.

    Raises:
        Internal: the plan has a value that is none.
    """
    if group.select not in get_args(Select):
        raise Internal(f"plan of a group: select {group.select[:40]!r} is not known")
    first = worker * group.executors
    own = group.cpusets[first : first + group.executors]
    if group.cpusets and len(own) < group.executors:
        raise Internal(f"plan of a group: no cpusets for worker {worker} in {group.cpusets}")
    try:
        return GroupSettings(
            executors=group.executors,
            batching=BatchSettings(
                merge=group.merge,
                max_rows=group.max_rows,
                max_delay_s=group.max_delay_s,
                split_rows=group.split_rows,
            ),
            queue=queue_settings(queue),
            max_repeated_bytes=max_repeated_bytes,
            select=cast(Select, group.select),
            cpusets=tuple(frozenset(cpus) for cpus in own),
        )
    except ValueError as fault:
        raise Internal(f"plan of a group: {fault}") from None


def serving_state(plan: StatePlan, versions: Mapping[int, ServedVersion]) -> ServingState:
    """Return what requests may name of `versions`, which are all that is in memory.

    Raises:
        Internal: the plan serves a version that it does not have.
    """
    absent = {*plan.served, *([] if plan.default is None else [plan.default])} - versions.keys()
    if absent or (plan.default is not None and plan.default not in plan.served):
        raise Internal(
            f"plan of a state: serves {list(plan.served)}, by default {plan.default}, "
            f"of versions {sorted(versions)}"
        )
    return ServingState(
        versions=MappingProxyType({number: versions[number] for number in sorted(plan.served)}),
        labels=MappingProxyType(dict(plan.labels)),
        default=plan.default,
        default_label=plan.default_label,
        required=plan.required,
    )
