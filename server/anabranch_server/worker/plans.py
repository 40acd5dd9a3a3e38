"""From plans, which cross processes, to the values that a session group and a catalog take."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.catalog import ServingState
from anabranch_runtime.cut_models import cut_model
from anabranch_runtime.lookups import lookups_of
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.settings import (
    BatchSettings,
    GroupSettings,
    QueueSettings,
    Select,
)
from anabranch_server.processes.arrays import array_of
from anabranch_server.processes.plans import (
    GroupPlan,
    PartPlan,
    QueuePlan,
    StatePlan,
    TensorPlan,
    VersionPlan,
)
from anabranch_wire.errors import Internal
from anabranch_wire.plan import decode as decode_plan
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import DATATYPES, Datatype, TensorSpec

__all__ = [
    "dense_model",
    "examples",
    "freshness",
    "group_settings",
    "queue_settings",
    "ranking_rules",
    "serving_state",
    "snapshot",
]


def snapshot(version: VersionPlan) -> Snapshot:
    """Return what the answers of a version name."""
    return Snapshot(version.model, version.version, version.delta)


def freshness(version: VersionPlan) -> Freshness:
    """Return how new a version is."""
    return Freshness(version.step, version.event_time)


def dense_model(version: VersionPlan) -> DenseModel:
    """Return what a backend builds.

    Raises:
        Internal: the plan contradicts itself.
        InvalidInput, Unsupported: its lookups do not fit the graph.
    """
    rows, inputs = version.rows, tuple(_tensor(spec) for spec in version.inputs)
    lookups = cut = None
    if version.store is not None:
        plan = decode_plan(version.store.plan)
        if version.cut is None:
            lookups = lookups_of(plan, inputs, version.user_inputs)
        else:
            parts = version.cut
            cut = cut_model(
                plan,
                inputs,
                _part(parts.dense),
                None if parts.prelude is None else _part(parts.prelude),
                None if parts.user is None else _part(parts.user),
                parts.user_inputs,
            )
    try:
        layout = RowLayout(
            rows.independent,
            rows.min_rows,
            rows.input_axes,
            rows.output_axes,
            rows.reason,
            rows.splittable,
        )
        return DenseModel(
            Path(version.path),
            inputs,
            tuple(_tensor(spec) for spec in version.outputs),
            layout,
            version.optimized,
            lookups,
            cut,
        )
    except ValueError as fault:
        raise Internal(f"plan of {snapshot(version)}: {fault}") from None


def examples(version: VersionPlan) -> list[Mapping[str, NDArray[np.generic]]]:
    """Return the requests to warm executors with.

    Raises:
        Corrupt: the bytes of an array do not fit its shape.
    """
    return [
        {name: array_of(array) for name, array in example.items()} for example in version.examples
    ]


def ranking_rules(version: VersionPlan) -> RankingRules | None:
    """Return how candidates are ranked; None where a version has no ranking. Reads its files.

    Raises:
        Corrupt, Unavailable: a file is damaged or cannot be read.
        Internal: the plan contradicts itself.
    """
    if version.ranking is None:
        return None
    try:
        return RankingRules(version.ranking, tuple(_tensor(spec) for spec in version.outputs))
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


def _part(plan: PartPlan) -> DenseModel:
    """Return a graph of a cut model; what its rows do is known of the original."""
    inputs = tuple(_tensor(spec) for spec in plan.inputs)
    outputs = tuple(_tensor(spec) for spec in plan.outputs)
    return part_model(Path(plan.path), inputs, outputs, optimized=plan.optimized)


def _tensor(plan: TensorPlan) -> TensorSpec:
    if plan.datatype not in DATATYPES:
        raise Internal(f"tensor {plan.name[:200]!r}: datatype {plan.datatype[:40]!r} is not known")
    return TensorSpec(plan.name, cast(Datatype, plan.datatype), plan.shape)
