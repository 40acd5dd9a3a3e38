"""Which routing key and priority a ranking is computed under, at both doors."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from anabranch_runtime.requests import Ticket
from anabranch_server.doors import Protocol
from anabranch_server.trace_context import TraceContext
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.ranked_doors import RankDoors, message_of, rank_doors
from anabranch_testing.ranked_models import ranked_model, ranked_plan

PLAN = ranked_plan(routing_key="country")
ASKED = {"user": {"country": "at"}, "candidates": {"item_id": [1], "price": [2.0]}}

Terms = tuple[str | int | None, int]


@dataclass
class Keys(Observed):
    """Keeps routing key and priority of what was scored."""

    terms: list[Terms] = field(default_factory=list)

    def scored(
        self,
        ticket: Ticket,
        protocol: Protocol,
        received: float,
        written: float,
        bytes_in: int,
        bytes_out: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """Keep them."""
        self.terms.append((ticket.request.routing_key, ticket.request.priority))
        self.changed.set()


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def doors(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[RankDoors]:
    models = {"ranked": ranked_model(tmp_path_factory.mktemp("model"))}
    with (
        door_context(models, observed=keys, rankings={"ranked": PLAN}) as context,
        rank_doors(context) as doors,
    ):
        yield doors


@pytest.mark.parametrize(
    ("parameters", "beside", "terms"),
    [
        ({}, {}, ("at", 0)),
        ({}, {"routing-key": "by-header", "priority": "2"}, ("by-header", 2)),
        ({"routing_key": "own", "priority": 1}, {}, ("own", 1)),
        (
            {"routing_key": "own", "priority": 1},
            {"routing-key": "by-header", "priority": "2"},
            ("own", 1),
        ),
    ],
    ids=["feature", "beside", "own", "own before beside"],
)
def test_the_requests_own_comes_first_then_what_is_beside_it_then_the_feature(
    doors: RankDoors,
    keys: Keys,
    parameters: dict[str, object],
    beside: dict[str, str],
    terms: Terms,
) -> None:
    document = {**ASKED, "parameters": parameters}
    headers = {f"Anabranch-{name}": value for name, value in beside.items()}
    metadata = tuple((f"anabranch-{name}", value) for name, value in beside.items())

    response = doors.json(document, headers=headers)
    assert response.status == 200
    keys.changed.clear()
    doors.message(message_of(document, PLAN), metadata=metadata)

    assert keys.changed.wait(10)
    assert keys.terms == [terms, terms]
