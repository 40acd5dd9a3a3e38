"""Twice the load that there is capacity for, short deadlines: what is computed must be in time."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings
from anabranch_testing.gated import TimedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, Counts, load_version, ticket_of
from anabranch_wire.errors import Overloaded

SECONDS = 2.0
TIMEOUT_S = 0.05


@pytest.mark.parametrize("clients", [60], ids=["closed loop"])
def test_short_deadlines_at_twice_the_capacity(tmp_path: Path, clients: int) -> None:
    backend = TimedBackend(batch_s=0.004)
    settings = GroupSettings(
        1, BatchSettings(max_rows=8, split_rows=0), QueueSettings(max_requests=32)
    )
    group = SessionGroup("m", settings, backend, Counts())
    served = load_version(group, scale_model(tmp_path))
    x = np.zeros((64, 4), np.float32)
    in_time = [0] * clients
    before = backend.computed
    end_s = time.monotonic() + SECONDS

    def ask(client: int) -> None:
        while time.monotonic() < end_s:
            sink = Collector()
            try:
                group.submit(ticket_of(served, sink, x, deadline_s=TIMEOUT_S))
            except Overloaded:
                time.sleep(0.005)
                continue
            (done,) = sink.wait(1)
            in_time[client] += done.error is None and done.finished <= done.request.deadline

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    computed = backend.computed - before
    group.close()
    print(f"{sum(in_time)} of {computed} computed were in time; capacity {SECONDS / 0.004:.0f}")

    assert sum(in_time) >= 0.9 * computed
    assert sum(in_time) >= 0.5 * SECONDS / 0.004
