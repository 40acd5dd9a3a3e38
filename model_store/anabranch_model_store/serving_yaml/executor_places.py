"""How many executors each worker has, and which processors each of them keeps to."""

from anabranch_model_store.serving_yaml.cpusets import parse_cpusets
from anabranch_model_store.serving_yaml.execution import Executors
from anabranch_wire.errors import InvalidInput

__all__ = ["executor_places"]


def executor_places(
    executors: Executors, workers: int, cores_per_worker: int
) -> tuple[int, tuple[frozenset[int], ...]]:
    """Return the executors of each worker, and the processors of each executor of the machine.

    Args:
        executors: of the deployment.
        workers: number of worker processes.
        cores_per_worker: executors of a worker where the deployment tells no number.

    Returns:
        The number, and one set for each executor, worker 0's first; no sets where none is pinned.

    Raises:
        InvalidInput: there are not as many sets as executors.
    """
    cpusets = parse_cpusets(executors.cpusets)
    each = executors.per_worker
    if not cpusets:
        return each or cores_per_worker, ()
    if not each:
        each, left = divmod(len(cpusets), workers)
        if left:
            raise InvalidInput(
                f"serving.yaml: executors.cpusets: {len(cpusets)} entries cannot be shared out "
                f"evenly among {workers} workers: expected one for each executor of the machine"
            )
    elif len(cpusets) != workers * each:
        raise InvalidInput(
            f"serving.yaml: executors.cpusets: {len(cpusets)} entries, expected {workers * each}: "
            f"one for each executor of {workers} workers with {each} executors (per_worker) each"
        )
    return each, cpusets
