"""Rankings keep no version: neither idle connections nor answers, explained or empty."""

import gc
import json
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.ranked_doors import message_of, rank_doors
from anabranch_testing.ranked_models import ranked_model, ranked_plan

PLAN = ranked_plan()
USER = {"country": "at"}
FEW = {"item_id": [1, 2], "price": [1.0, 2.0]}
MANY = {"item_id": list(range(20_000)), "price": [1.0] * 20_000}
NONE: dict[str, list[int]] = {"item_id": [], "price": []}


@pytest.fixture
def context(tmp_path: Path) -> Iterator[DoorContext]:
    gc.collect()
    gc.disable()  # a server that idles collects no cycles
    try:
        with door_context(
            {"ranked": ranked_model(tmp_path)}, rankings={"ranked": PLAN}, explain_sample=0.5
        ) as context:
            yield context
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"user": USER, "candidates": FEW, "explain": True}, 200),
        ({"user": USER, "candidates": MANY}, 200),
        ({"user": USER, "candidates": NONE, "explain": True}, 200),
        ({"user": {}, "candidates": FEW}, 400),
        ({"user": USER, "candidates": FEW, "parameters": {"timeout": 1}}, 504),
    ],
    ids=["explained", "long", "empty", "at fault", "late"],
)
def test_idle_clients_keep_no_version(
    context: DoorContext, document: dict[str, Any], status: int
) -> None:
    with rank_doors(context) as doors:
        for _ in range(3):
            assert doors.json(json.dumps(document).encode()).status == status
            if status == 200:
                doors.message(message_of(document, PLAN))
            else:
                with pytest.raises(grpc.RpcError):
                    doors.message(message_of(document, PLAN))

        assert is_let_go(context)


def is_let_go(context: DoorContext) -> bool:
    """Whether nobody has the version any more, soon after the catalog has not."""
    watched: weakref.ref[ServedVersion] = weakref.ref(context.catalog.resolve("ranked"))
    publish(context.catalog, "ranked", None)
    end_s = time.monotonic() + 5.0
    while watched() is not None and time.monotonic() < end_s:
        time.sleep(0.01)  # threads may be about to leave their last request
    return watched() is None
