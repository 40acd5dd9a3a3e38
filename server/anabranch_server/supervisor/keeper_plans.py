"""From what a model should serve to the state that workers prepare."""

from collections.abc import Mapping
from typing import Final

from anabranch_model_store.serving_yaml import Deployment, executor_places
from anabranch_server.processes.plans import GroupPlan, QueuePlan, StatePlan
from anabranch_server.supervisor.desired import Desired, Loaded

__all__ = ["group_plan", "state_plan"]

_SPLIT: Final = {"auto": None, "off": 0}


def group_plan(deployment: Deployment, workers: int, cores: int) -> GroupPlan:
    """Return how the executors of a model are run.

    Args:
        deployment: of the model.
        workers: number of worker processes.
        cores: executors of a worker where the deployment names no number.

    Raises:
        InvalidInput: there are not as many processor sets as executors.
    """
    told, batching = deployment.executors, deployment.batching
    executors, cpusets = executor_places(told, workers, cores)
    split = batching.split_rows
    return GroupPlan(
        backend=told.backend,
        executors=executors,
        select=told.select,
        cpusets=tuple(tuple(sorted(processors)) for processors in cpusets),
        merge=batching.merge,
        max_rows=None if batching.max_rows == "auto" else batching.max_rows,
        max_delay_s=batching.max_delay_us / 1e6,
        split_rows=_SPLIT[split] if isinstance(split, str) else split,
    )


def state_plan(
    wanted: Desired, deployment: Deployment, loaded: Mapping[int, Loaded], group: GroupPlan
) -> StatePlan:
    """Return the state for `wanted`, all of whose versions are among `loaded`.

    Args:
        wanted: what to serve; nothing of it is left to load.
        deployment: how the model is run.
        loaded: versions that were found good.
        group: of the deployment.
    """
    queue = deployment.queue
    return StatePlan(
        group=group,
        queue=QueuePlan(
            max_requests=queue.max_requests,
            max_rows=queue.max_rows,
            default_timeout_s=queue.default_timeout_ms / 1e3,
            max_timeout_s=queue.max_timeout_ms / 1e3,
            priority_levels=queue.priority_levels,
        ),
        versions=tuple(loaded[number].plan for number in sorted({*wanted.served, *wanted.kept})),
        served=wanted.served,
        labels=dict(wanted.labels),
        default=wanted.default,
        default_label=wanted.default_label,
        required=wanted.required,
        retain=deployment.keep_previous,
    )
