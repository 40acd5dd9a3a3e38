from collections.abc import Callable

import pytest

from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BatchSettings(max_rows=0), "batching.max_rows 0: expected at least 1"),
        (lambda: BatchSettings(max_delay_s=-1e-6), "batching.max_delay_us: expected at least 0"),
        (lambda: BatchSettings(split_rows=-1), "batching.split_rows -1: expected at least 0"),
        (lambda: QueueSettings(max_requests=0), "queue.max_requests: expected more than 0"),
        (
            lambda: QueueSettings(default_timeout_s=float("nan")),
            "queue.default_timeout_s: expected",
        ),
        (lambda: QueueSettings(priority_levels=0), "queue.priority_levels: expected at least 1"),
        (lambda: GroupSettings(executors=0), "executors 0: expected at least 1"),
        (
            lambda: GroupSettings(2, cpusets=(frozenset({0}),)),
            "executors.cpusets: 1 sets for 2 executors",
        ),
        (
            lambda: GroupSettings(1, cpusets=(frozenset(),)),
            "executors.cpusets: expected at least one processor",
        ),
        (lambda: GroupSettings(max_repeated_bytes=-1), "max_repeated_bytes: expected at least 0"),
    ],
)
def test_values_without_a_meaning_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
