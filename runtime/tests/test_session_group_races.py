"""Everything at once: whatever happens to a ticket, it comes back exactly once."""

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.requests import Ticket
from anabranch_runtime.settings import BatchSettings, QueueSettings
from anabranch_testing.graphs import lookup_model
from anabranch_testing.groups import Collector, MakeGroup, load_version, ticket_of
from anabranch_wire.errors import (
    AnabranchError,
    Cancelled,
    DeadlineExceeded,
    InvalidInput,
    Overloaded,
    Unavailable,
)

EACH = 400


@pytest.mark.parametrize("delay_s", [0.0, 0.0005], ids=["greedy", "delayed"])
def test_every_accepted_ticket_comes_back_once(
    make_group: MakeGroup, tmp_path: Path, delay_s: float
) -> None:
    group = make_group(
        3,
        BatchSettings(max_rows=8, split_rows=3, max_delay_s=delay_s),
        QueueSettings(max_requests=500, priority_levels=3),
    )
    served = load_version(group, lookup_model(tmp_path))
    sink = Collector()
    accepted: list[Ticket] = []
    refused: list[AnabranchError] = []
    halfway = threading.Barrier(5)

    def send(seed: int) -> None:
        choice = random.Random(seed)
        for number in range(EACH):
            if number == EACH // 2:
                halfway.wait(20)
            ids = np.array([choice.randrange(5) for _ in range(choice.randrange(12))], np.int64)
            if ids.size and choice.random() < 0.05:
                ids[0] = 99
            ticket = ticket_of(
                served,
                sink,
                ids,
                deadline_s=-1.0 if choice.random() < 0.05 else 30.0,
                priority=choice.randrange(4),
            )
            try:
                group.submit(ticket)
            except (Overloaded, Unavailable) as error:
                refused.append(error)
                continue
            accepted.append(ticket)
            ticket.cancelled = choice.random() < 0.05

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    halfway.wait(20)
    assert group.close(20.0)
    for thread in threads:
        thread.join(20)

    done = sink.wait(len(accepted))
    assert len(accepted) + len(refused) == 4 * EACH
    assert sorted(map(id, done)) == sorted(map(id, accepted))
    assert group.in_flight() == 0
    for ticket in done:
        ids = ticket.request.inputs[0].astype(np.float32)
        if ticket.error is None:
            assert ticket.outputs is not None
            np.testing.assert_array_equal(ticket.outputs[0], np.stack([ids, ids + 0.5], axis=1))
        elif isinstance(ticket.error, InvalidInput):
            assert ids[0] == 99
        elif isinstance(ticket.error, DeadlineExceeded):
            assert ticket.request.deadline <= ticket.finished
        elif isinstance(ticket.error, Overloaded):
            assert ticket.request.priority != 1
        else:
            assert isinstance(ticket.error, Cancelled)
            assert ticket.cancelled
