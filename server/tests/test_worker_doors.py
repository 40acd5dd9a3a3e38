"""How long a worker's doors stay open while it drains."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.clients import Clients
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Lifecycle
from anabranch_server.limits import Limits
from anabranch_server.processes.board import MODEL_SLOTS
from anabranch_server.processes.boot import Boot
from anabranch_server.settings import read_settings, serve_config
from anabranch_server.worker.doors import Doors
from anabranch_testing.doors import Observed

DRAIN_S = 30.0
VISITS = 12
PAUSE_S = 0.1


def visit_by_connection(clients: Clients) -> None:
    clients.disconnect(clients.connect("192.0.2.1"))


def visit_by_call(clients: Clients) -> None:
    clients.end_call(clients.begin_call("192.0.2.1"))


def doors_at(folder: Path, clients: Clients) -> Doors:
    """Doors that were never opened: nobody is ever found connected."""
    catalog = Catalog(SharedWords.create(MODEL_SLOTS))
    context = DoorContext(catalog, Limits(), Lifecycle(catalog), Observed(), "0", clients)
    config = serve_config(read_settings({}, {}, None), str(folder), cores=1)
    boot = Boot("worker", "0" * 16, 1, 0.0, config, {}, {}, str(folder))
    return Doors(context, boot, lambda: 0)


async def drained_s(doors: Doors, visits: int, visit: Callable[[], None]) -> tuple[float, float]:
    """Drain while somebody comes and goes; returns when the last one came, and when it was over."""
    begun_s = last_s = time.monotonic()
    draining = asyncio.create_task(doors.drain(DRAIN_S))
    for _ in range(visits):
        await asyncio.sleep(PAUSE_S)
        if draining.done():
            break
        visit()
        last_s = time.monotonic()
    await draining
    return last_s - begun_s, time.monotonic() - begun_s


@pytest.mark.parametrize("visit", [visit_by_connection, visit_by_call])
def test_who_comes_and_goes_between_two_looks_keeps_the_doors_open(
    visit: Callable[[Clients], None], tmp_path: Path
) -> None:
    clients = Clients()

    last_s, over_s = asyncio.run(
        drained_s(doors_at(tmp_path, clients), VISITS, lambda: visit(clients))
    )

    assert clients.seen == VISITS
    assert last_s + 0.4 < over_s < DRAIN_S


def test_where_nobody_comes_it_is_over_soon(tmp_path: Path) -> None:
    _, over_s = asyncio.run(drained_s(doors_at(tmp_path, Clients()), 0, lambda: None))

    assert 0.4 < over_s < DRAIN_S / 2
