"""When an answer becomes worthless: the shortest of all time limits that came with a request."""

from anabranch_runtime.settings import QueueSettings

__all__ = ["deadline_for"]


def deadline_for(received: float, queue: QueueSettings, *timeouts_s: float | None) -> float:
    """Return the `time.monotonic()` value after which nothing is computed for a request.

    Args:
        received: `time.monotonic()` when the request was complete.
        queue: the model's default, and the longest time that it grants anyone.
        timeouts_s: limits that came with the request, in seconds; None where there was none.
    """
    shortest: float | None = None
    for timeout_s in timeouts_s:
        if timeout_s is not None and (shortest is None or timeout_s < shortest):
            shortest = timeout_s
    if shortest is None:
        shortest = queue.default_timeout_s
    return received + min(shortest, queue.max_timeout_s)
