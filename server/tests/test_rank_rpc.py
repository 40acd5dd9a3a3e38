"""Rank over gRPC: what is particular to messages, trailers and the port's other services."""

import time
from collections.abc import Iterator
from concurrent import futures

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from anabranch_server.limits import Limits
from anabranch_testing.doors import FRESHNESS, Observed, door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.ranked_doors import RANK, RankDoors, message_of, rank_doors
from anabranch_testing.ranked_models import ranked_model, ranked_plan
from anabranch_testing.rpc import call_bytes
from anabranch_wire.ranking import FLOAT32, INT64, RankRequest
from anabranch_wire.services import RANKING

PLAN = ranked_plan()
ASKED = {
    "id": "req-7",
    "user": {"age": 20.0, "country": "at"},
    "candidates": {"item_id": [11, 12, 13], "price": [9.5, 12.0, 3.0]},
    "top_k": 2,
}


@pytest.fixture(scope="module")
def observed() -> Observed:
    return Observed()


@pytest.fixture(scope="module")
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture(scope="module")
def doors(
    tmp_path_factory: pytest.TempPathFactory, observed: Observed, backend: GatedBackend
) -> Iterator[RankDoors]:
    models = {"ranked": ranked_model(tmp_path_factory.mktemp("models"))}
    with (
        door_context(
            models,
            observed=observed,
            backend=backend,
            limits=Limits(max_tensors=64),
            rankings={"ranked": PLAN},
        ) as context,
        rank_doors(context) as doors,
    ):
        yield doors


def request(**fields: object) -> RankRequest:
    return message_of({**ASKED, **fields}, PLAN)


def failure(doors: RankDoors, message: RankRequest) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        doors.message(message)
    return caught.value.code().name, caught.value.details() or ""


def test_an_answer_has_raw_numbers_and_names_its_snapshot(doors: RankDoors) -> None:
    answer, trailers = doors.message(
        request(outputs=["ctr", "both"], explain=True), metadata=(("x-request-id", "abc"),)
    )

    assert (answer.model_name, answer.model_version, answer.delta) == ("ranked", "42", 17)
    assert answer.id == "req-7"
    assert list(answer.ids.int64s) == [12, 11]
    assert np.frombuffer(answer.scores, "<f4").tolist() == [52.0, 49.5]
    assert np.frombuffer(answer.positions, "<u4").tolist() == [1, 0]
    assert {name: column.type for name, column in answer.outputs.items()} == {
        "ctr": FLOAT32,
        "both": FLOAT32,
    }
    assert np.frombuffer(answer.outputs["both"].raw, "<f4").tolist() == [20.0, 12.0, 20.0, 9.5]
    assert answer.explain.step == FRESHNESS.step
    assert answer.explain.event_time == FRESHNESS.event_time
    assert answer.explain.age_s > 0
    assert list(answer.explain.defaulted) == ["tags"]
    assert set(answer.explain.stages_ms) == {"decode", "queue", "lookup", "run"}
    assert trailers["x-request-id"] == "abc"
    assert trailers["anabranch-model-version"] == "42"
    assert trailers["anabranch-delta"] == "17"


def test_without_explain_there_is_none(doors: RankDoors) -> None:
    answer, _ = doors.message(request())

    assert not answer.HasField("explain")
    assert not answer.outputs


def test_ids_come_back_in_the_form_that_was_sent(doors: RankDoors) -> None:
    typed, _ = doors.message(request())
    raw, _ = doors.message(message_of(ASKED, PLAN, raw=True))

    assert list(typed.ids.int64s) == [12, 11]
    assert not typed.ids.raw
    assert raw.ids.type == INT64
    assert np.frombuffer(raw.ids.raw, "<i8").tolist() == [12, 11]


@pytest.mark.parametrize("version", ["", "42", "stable"])
def test_a_version_is_chosen_by_number_or_label(doors: RankDoors, version: str) -> None:
    chosen = request()
    chosen.model_version = version

    assert doors.message(chosen)[0].model_version == "42"


@pytest.mark.parametrize("version", ["7", "canary", "042"])
def test_a_version_that_is_not_served_is_not_found(doors: RankDoors, version: str) -> None:
    chosen = request()
    chosen.model_version = version

    code, text = failure(doors, chosen)

    assert code == "NOT_FOUND"
    assert version in text


def test_bytes_that_are_no_message_are_refused(doors: RankDoors) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(doors.channel, RANK, b"\xff\xff")

    assert caught.value.code().name == "INVALID_ARGUMENT"
    assert "malformed RankRequest" in (caught.value.details() or "")


def test_bytes_that_are_no_column_are_refused_with_their_feature(doors: RankDoors) -> None:
    entry = b"\x0a\x05price\x12\x02\xff\xff"
    message = request().SerializeToString() + b"\x2a" + bytes([len(entry)]) + entry

    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(doors.channel, RANK, message)

    assert caught.value.code().name == "INVALID_ARGUMENT"
    assert "feature 'price'" in (caught.value.details() or "")


def test_a_message_of_very_many_fields_is_not_parsed(doors: RankDoors) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(doors.channel, RANK, b"\x2a\x00" * 40_000)

    assert caught.value.code().name == "RESOURCE_EXHAUSTED"
    assert "at most 64 features and outputs" in (caught.value.details() or "")


def test_no_candidates_are_ranked_without_computing(
    doors: RankDoors, backend: GatedBackend
) -> None:
    computed = backend.computed

    answer, trailers = doors.message(
        request(candidates={"item_id": [], "price": []}, outputs=["both"])
    )

    assert (answer.scores, answer.positions) == (b"", b"")
    assert list(answer.outputs) == ["both"]
    assert trailers["anabranch-model-version"] == "42"
    assert backend.computed == computed


def test_requests_and_failures_are_counted_under_their_protocol(
    doors: RankDoors, observed: Observed
) -> None:
    observed.scores.clear()
    observed.failures.clear()
    message = request()

    answer, _ = doors.message(message)
    failure(doors, request(outputs=["nothing"]))

    until_s = time.monotonic() + 10
    while not (observed.scores and observed.failures) and time.monotonic() < until_s:
        time.sleep(0.01)  # an answer may be there before it is counted
    ((model, protocol, bytes_in, bytes_out),) = observed.scores
    assert (model, protocol, bytes_in) == ("ranked", "rank_grpc", message.ByteSize())
    assert bytes_out == answer.ByteSize()
    assert observed.failures == [("ranked", "rank_grpc", "INVALID_ARGUMENT")]


def test_a_caller_who_leaves_is_not_computed_for(doors: RankDoors, backend: GatedBackend) -> None:
    call = doors.channel.unary_unary(RANK, RankRequest.SerializeToString, None)
    backend.hold()
    try:
        busy = call.future(request(), timeout=20)
        assert backend.entered.acquire(timeout=10)
        computed = backend.computed
        left = call.future(request(), timeout=20)
        time.sleep(0.2)
        left.cancel()  # type: ignore[no-untyped-call]  # as the stubs have it
        time.sleep(0.2)
    finally:
        backend.gate.set()

    assert busy.result()
    doors.message(request())
    assert backend.computed == computed + 2


def test_the_service_is_healthy_and_reflected(doors: RankDoors) -> None:
    health = health_pb2_grpc.HealthStub(doors.channel)

    status = health.Check(health_pb2.HealthCheckRequest(service=RANKING.name), timeout=20).status
    services = ProtoReflectionDescriptorDatabase(doors.channel).get_services()

    assert status == health_pb2.HealthCheckResponse.SERVING
    assert RANKING.name in services


def test_many_callers_get_their_own_answers(doors: RankDoors) -> None:
    def rank(number: int) -> tuple[list[int], str]:
        ids = [number, number + 1]
        answer, _ = doors.message(
            request(id=str(number), candidates={"item_id": ids, "price": [1.0, 2.0]})
        )
        return list(answer.ids.int64s), answer.id

    with futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(rank, range(200)))

    assert answers == [([number + 1, number], str(number)) for number in range(200)]
