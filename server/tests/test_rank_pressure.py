"""Rankings of both doors while there is too much to do, too little time, or another version."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.catalog import ServingState
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings, QueueSettings
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.limits import Limits
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.doors import Observed, door_context, example_of, users_of
from anabranch_testing.gated import GatedBackend
from anabranch_testing.groups import Counts
from anabranch_testing.http_doors import Peer, http_door, infer_request
from anabranch_testing.ranked_doors import RankDoors, message_of, rank_doors
from anabranch_testing.ranked_models import ranked_model, ranked_plan
from anabranch_testing.rpc import trailers_of
from anabranch_wire.snapshots import Snapshot

PLAN = ranked_plan()
ASKED = {
    "user": {"age": 20.0, "country": "at"},
    "candidates": {"item_id": [11, 12, 13], "price": [9.5, 12.0, 3.0]},
}
PATH = "/v1/models/ranked:rank"


@pytest.fixture
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture
def context(backend: GatedBackend, tmp_path: Path) -> Iterator[DoorContext]:
    queue = QueueSettings(max_requests=2, default_timeout_s=20.0)
    models = {"ranked": ranked_model(tmp_path)}
    with door_context(models, backend=backend, queue=queue, rankings={"ranked": PLAN}) as context:
        yield context
        backend.gate.set()


@pytest.fixture
def doors(context: DoorContext) -> Iterator[RankDoors]:
    with rank_doors(context) as doors:
        yield doors


def json_request(**parameters: object) -> bytes:
    body = json.dumps({**ASKED, "parameters": parameters}).encode()
    return infer_request(body, path=PATH)


def test_what_is_too_much_is_refused_with_when_to_come_back(
    context: DoorContext, doors: RankDoors, backend: GatedBackend
) -> None:
    backend.hold()
    with http_door(context) as door, Peer(door) as busy, Peer(door) as waiting:
        busy.send(json_request())
        assert backend.entered.acquire(timeout=10)
        waiting.send(json_request() * 2)
        _until_full(context)

        refused = doors.json(ASKED)
        with pytest.raises(grpc.RpcError) as caught:
            doors.message(message_of(ASKED, PLAN))
        empty = doors.json({**ASKED, "candidates": {"item_id": [], "price": []}})
        backend.gate.set()
        answered = [busy.read().status, waiting.read().status, waiting.read().status]

    assert refused.status == 503
    assert "the queue is full" in json.loads(refused.body)["error"]
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["anabranch-retry-after-ms"]) >= 1
    assert caught.value.code().name == "RESOURCE_EXHAUSTED"
    assert int(trailers_of(caught.value)["grpc-retry-pushback-ms"]) >= 1
    assert empty.status == 200, "nothing to compute waits for nobody"
    assert answered == [200, 200, 200]


def _until_full(context: DoorContext) -> None:
    group = context.catalog.resolve("ranked").group
    end_s = time.monotonic() + 10
    while group.queue_depth()[0] < 2:
        assert time.monotonic() < end_s, "too few wait"
        time.sleep(0.005)


def test_what_takes_too_long_is_late_at_both_doors(doors: RankDoors, backend: GatedBackend) -> None:
    backend.hold()
    late = {**ASKED, "parameters": {"timeout": 50_000}}

    by_parameter = doors.json(late)
    with pytest.raises(grpc.RpcError) as by_message:
        doors.message(message_of(late, PLAN))
    with pytest.raises(grpc.RpcError) as by_deadline:
        doors.message(message_of(ASKED, PLAN), timeout_s=0.1)
    backend.gate.set()

    assert by_parameter.status == 504
    assert by_message.value.code().name == "DEADLINE_EXCEEDED"
    assert by_deadline.value.code().name == "DEADLINE_EXCEEDED"


def test_the_shortest_time_limit_counts(doors: RankDoors, backend: GatedBackend) -> None:
    backend.hold()
    patient = {**ASKED, "parameters": {"timeout": 20_000_000}}

    by_header = doors.json(patient, headers={"Anabranch-Timeout-Ms": "50"})
    with pytest.raises(grpc.RpcError) as by_metadata:
        doors.message(message_of(patient, PLAN), metadata=(("anabranch-timeout-ms", "50"),))
    backend.gate.set()

    assert by_header.status == 504
    assert by_metadata.value.code().name == "DEADLINE_EXCEEDED"


def test_every_answer_is_of_one_version_while_it_switches(tmp_path: Path) -> None:
    catalog = OwnCatalog()
    group = SessionGroup("ranked", GroupSettings(executors=2), OrtCpuBackend(), Counts())
    model = ranked_model(tmp_path)
    # Version 1 answers the dearest first, version 2 the cheapest.
    states = {}
    for number, descending in ((1, True), (2, False)):
        plan = ranked_plan(descending=descending)
        served = group.load(
            Snapshot("ranked", number),
            model,
            [example_of(model)],
            warm_rounds=1,
            user_inputs=users_of(plan),
            ranking=RankingRules(plan, model.outputs),
        )
        states[number] = ServingState({number: served}, default=number)
    catalog.publish("ranked", states[1])
    lifecycle = Lifecycle(catalog)
    lifecycle.advance(Phase.SERVING)
    context = DoorContext(catalog, Limits(), lifecycle, Observed(), "0.1.0")
    ended = threading.Event()

    def switch() -> int:
        switches = 0
        while not ended.is_set():
            catalog.publish("ranked", states[1 + switches % 2])
            switches += 1
            time.sleep(0.002)
        return switches

    seen: set[str] = set()
    try:
        with rank_doors(context) as doors, futures.ThreadPoolExecutor(1) as pool:
            switching = pool.submit(switch)
            try:
                for _ in range(300):
                    answer = json.loads(doors.json(ASKED).body)
                    message, _ = doors.message(message_of(ASKED, PLAN))
                    for version, ids in (
                        (answer["model_version"], answer["ids"]),
                        (message.model_version, list(message.ids.int64s)),
                    ):
                        assert ids == {"1": [12, 11, 13], "2": [13, 11, 12]}[version]
                        seen.add(version)
            finally:
                ended.set()
            assert switching.result() > 2
    finally:
        group.close()
    assert seen == {"1", "2"}
