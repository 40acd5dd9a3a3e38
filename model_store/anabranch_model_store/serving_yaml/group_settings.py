"""From a deployment to what a session group is told."""

from anabranch_model_store.serving_yaml.deployment import Deployment
from anabranch_model_store.serving_yaml.executor_places import executor_places
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings

__all__ = ["group_settings"]


def group_settings(
    deployment: Deployment, cores_per_worker: int, workers: int = 1, worker: int = 0
) -> GroupSettings:
    """Return the settings of the model's session group in one worker.

    Args:
        deployment: one that `check_deployment` let pass.
        cores_per_worker: usable cores / workers, at least 1: the number of executors where the
            deployment names none.
        workers: number of worker processes.
        worker: index of this one.

    Raises:
        InvalidInput: there are not as many processor sets as executors.
    """
    batching, queue = deployment.batching, deployment.queue
    split = {"auto": None, "off": 0}
    executors, cpusets = executor_places(deployment.executors, workers, cores_per_worker)
    return GroupSettings(
        executors=executors,
        select=deployment.executors.select,
        cpusets=cpusets[worker * executors :][:executors],
        batching=BatchSettings(
            merge=batching.merge,
            max_rows=None if batching.max_rows == "auto" else batching.max_rows,
            max_delay_s=batching.max_delay_us / 1e6,
            split_rows=(
                split[batching.split_rows]
                if isinstance(batching.split_rows, str)
                else batching.split_rows
            ),
        ),
        queue=QueueSettings(
            max_requests=queue.max_requests,
            max_rows=queue.max_rows,
            default_timeout_s=queue.default_timeout_ms / 1e3,
            max_timeout_s=queue.max_timeout_ms / 1e3,
            priority_levels=queue.priority_levels,
        ),
    )
