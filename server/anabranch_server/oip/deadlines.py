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
    longest_s = queue.max_timeout_s
    given = [timeout_s for timeout_s in timeouts_s if timeout_s is not None]
    wanted_s = min(given) if given else queue.default_timeout_s
    return received + (wanted_s if wanted_s < longest_s else longest_s)
