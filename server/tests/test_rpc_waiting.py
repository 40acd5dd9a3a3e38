"""What happens while a call waits: deadlines, cancellation, refusals, probes beside it."""

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from anabranch_runtime.catalog import ServingState
from anabranch_runtime.settings import QueueSettings
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.limits import Limits
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.doors import Observed
from anabranch_testing.graphs import scale_model
from anabranch_testing.rpc import (
    HeldGroup,
    call,
    failure,
    infer,
    open_door,
    raw_request,
    trailers_of,
)
from anabranch_wire.errors import Cancelled, Overloaded, Unavailable
from anabranch_wire.oip import ModelInferRequest, ServerLiveRequest, ServerLiveResponse
from anabranch_wire.services import INFERENCE

THREADS = 2


def request() -> ModelInferRequest:
    return raw_request("held", {"x": np.zeros((1, 4), np.float32)})


def until(condition: object, timeout_s: float = 10.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


@pytest.fixture
def group() -> HeldGroup:
    return HeldGroup(QueueSettings(default_timeout_s=20.0, max_timeout_s=20.0))


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def context(tmp_path: Path, group: HeldGroup, observed: Observed) -> DoorContext:
    catalog = OwnCatalog()
    served = group.serve(scale_model(tmp_path))
    catalog.publish("held", ServingState({42: served}, default=42))
    lifecycle = Lifecycle(catalog)
    lifecycle.advance(Phase.SERVING)
    return DoorContext(catalog, Limits(), lifecycle, observed, "0.1.0")


@pytest.fixture
def channel(context: DoorContext) -> Iterator[grpc.Channel]:
    with open_door(context, threads=THREADS) as (_, channel):
        yield channel


def test_the_timeout_parameter_ends_the_wait(channel: grpc.Channel, group: HeldGroup) -> None:
    timed = request()
    timed.parameters["timeout"].int64_param = 50_000

    code, details = failure(channel, timed)

    assert (code, "deadline" in details) == ("DEADLINE_EXCEEDED", True)
    assert group.tickets[0].cancelled


def test_the_metadata_timeout_ends_the_wait(channel: grpc.Channel, group: HeldGroup) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, request(), metadata=(("anabranch-timeout-ms", "50.5"),))

    assert caught.value.code().name == "DEADLINE_EXCEEDED"
    assert group.tickets[0].cancelled


def test_a_timeout_of_nothing_is_past_at_once(channel: grpc.Channel, group: HeldGroup) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, request(), metadata=(("anabranch-timeout-ms", "0"),))

    assert caught.value.code().name == "DEADLINE_EXCEEDED"


def test_the_shortest_of_all_deadlines_counts(channel: grpc.Channel, group: HeldGroup) -> None:
    timed = request()
    timed.parameters["timeout"].int64_param = 2_000_000
    began = time.monotonic()
    with futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(
            infer, channel, timed, timeout_s=7.0, metadata=(("anabranch-timeout-ms", "5000"),)
        )
        until(lambda: group.tickets)
        ticket = group.tickets[0]
        group.finish()
        answer.result()

    assert 0.0 < ticket.request.deadline - began <= 2.5


def test_the_callers_own_deadline_reaches_the_ticket(
    channel: grpc.Channel, group: HeldGroup
) -> None:
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, request(), timeout_s=0.2)

    assert caught.value.code().name == "DEADLINE_EXCEEDED"
    assert group.tickets[0].request.deadline - began < 1.0
    until(lambda: group.tickets[0].cancelled)


def test_no_deadline_is_longer_than_the_model_grants(
    channel: grpc.Channel, group: HeldGroup
) -> None:
    long = request()
    long.parameters["timeout"].int64_param = 10**15
    with futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(infer, channel, long)
        until(lambda: group.tickets)
        left_s = group.tickets[0].request.deadline - time.monotonic()
        group.finish()
        answer.result()

    assert left_s <= 20.0


def test_the_parameter_decides_the_priority_before_the_metadata(
    channel: grpc.Channel, group: HeldGroup
) -> None:
    urgent = request()
    urgent.parameters["priority"].int64_param = 1
    with futures.ThreadPoolExecutor() as pool:
        metadata = (("anabranch-priority", "2"),)
        both = pool.submit(infer, channel, urgent, metadata=metadata)
        until(lambda: len(group.tickets) == 1)
        one = pool.submit(infer, channel, request(), metadata=metadata)
        until(lambda: len(group.tickets) == 2)
        priorities = [ticket.request.priority for ticket in group.tickets]
        group.finish()
        both.result()
        one.result()

    assert priorities == [1, 2]


def test_a_caller_who_leaves_cancels_the_ticket(
    channel: grpc.Channel, group: HeldGroup, observed: Observed
) -> None:
    method = channel.unary_unary(
        INFERENCE.methods["ModelInfer"].path, ModelInferRequest.SerializeToString, None
    )
    pending = method.future(request(), timeout=20)
    until(lambda: group.tickets)
    ticket = group.tickets[0]

    pending.cancel()  # type: ignore[no-untyped-call]  # of grpc
    until(lambda: ticket.cancelled)
    ticket.error = Cancelled("the caller left before the request was computed")
    ticket.sink.deliver([ticket])

    until(lambda: observed.failures)
    assert observed.failures == [("held", "oip_grpc", "CANCELLED")]


def test_overload_says_when_to_come_back(channel: grpc.Channel, group: HeldGroup) -> None:
    group.refuse_with = Overloaded("1024 requests wait", retry_after_s=0.25)

    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, request())

    assert caught.value.code().name == "RESOURCE_EXHAUSTED"
    assert trailers_of(caught.value)["grpc-retry-pushback-ms"] == "250"


def test_a_refusal_has_the_status_of_its_class(channel: grpc.Channel, group: HeldGroup) -> None:
    group.refuse_with = Unavailable("model 'held' is being unloaded")

    assert failure(channel, request()) == ("UNAVAILABLE", "model 'held' is being unloaded")


def test_a_long_text_is_cut_to_what_trailers_carry(channel: grpc.Channel, group: HeldGroup) -> None:
    group.refuse_with = Unavailable("é" * 20_000)

    code, details = failure(channel, request())

    assert code == "UNAVAILABLE"
    assert 1000 < len(details) < 2000


def test_an_unforeseen_failure_keeps_its_detail(
    channel: grpc.Channel, group: HeldGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.refuse_with = RuntimeError("secret detail")

    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, request(), metadata=(("x-request-id", "r-9"),))

    assert caught.value.code().name == "INTERNAL"
    assert caught.value.details() == "internal error, request r-9"
    assert "secret detail" in caplog.text


def test_probes_are_answered_while_every_thread_waits(
    channel: grpc.Channel, group: HeldGroup
) -> None:
    with futures.ThreadPoolExecutor(3 * THREADS) as pool:
        answers = [pool.submit(infer, channel, request()) for _ in range(3 * THREADS)]
        until(lambda: len(group.tickets) == THREADS)

        live = call(channel, "ServerLive", ServerLiveRequest())

        answered = 0
        while answered < len(answers):
            group.finish()
            time.sleep(0.01)
            answered = sum(answer.done() for answer in answers)
        assert isinstance(live, ServerLiveResponse)
        assert live.live
        assert all(answer.result()[0].model_version == "42" for answer in answers)


def test_no_thread_is_lost_to_callers_who_leave(channel: grpc.Channel, group: HeldGroup) -> None:
    for _ in range(4 * THREADS):
        failure_code = "none"
        try:
            infer(channel, request(), metadata=(("anabranch-timeout-ms", "20"),))
        except grpc.RpcError as error:
            failure_code = error.code().name
        assert failure_code == "DEADLINE_EXCEEDED"
    group.finish()

    with futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(infer, channel, request())
        until(lambda: group.tickets)
        group.finish()
        assert answer.result()[0].model_version == "42"
    assert threading.active_count() < 40


def test_calls_that_cannot_wait_are_refused_while_probes_are_answered(
    context: DoorContext, group: HeldGroup, observed: Observed
) -> None:
    with open_door(context, threads=1) as (_, channel):
        method = channel.unary_unary(
            INFERENCE.methods["ModelInfer"].path, ModelInferRequest.SerializeToString, None
        )
        pending = [method.future(request(), timeout=20) for _ in range(80)]
        until(lambda: len(observed.failures) == 80 - 65)

        live = call(channel, "ServerLive", ServerLiveRequest())
        while not all(answer.done() for answer in pending):
            group.finish()
            time.sleep(0.001)

        refused = [answer for answer in pending if answer.code() is not grpc.StatusCode.OK]
        assert live == ServerLiveResponse(live=True)
        assert len(refused) == 80 - 65
        assert {answer.code().name for answer in refused} == {"RESOURCE_EXHAUSTED"}
        assert trailers_of(refused[0])["grpc-retry-pushback-ms"] == "1000"


def test_the_calls_of_a_client_are_bounded_those_that_wait_for_a_thread_included(
    context: DoorContext, group: HeldGroup, observed: Observed
) -> None:
    limited = replace(context, limits=Limits(max_in_flight_per_client=6))
    with open_door(limited, threads=1) as (_, channel):
        method = channel.unary_unary(
            INFERENCE.methods["ModelInfer"].path, ModelInferRequest.SerializeToString, None
        )
        first = method.future(request(), timeout=20)
        until(lambda: group.tickets)
        pending = [method.future(request(), timeout=20) for _ in range(9)]
        until(lambda: calls_of(limited) == 10)
        while not first.done() or not all(answer.done() for answer in pending):
            group.finish()
            time.sleep(0.001)

    refused = [answer for answer in pending if answer.code() is not grpc.StatusCode.OK]
    # The first one was alone when it began; of nine that came while it was computed six may wait.
    assert len(refused) == 3
    for answer in refused:
        assert answer.code().name == "RESOURCE_EXHAUSTED"
        assert "of this client wait: at most 6 are allowed" in answer.details()
        assert trailers_of(answer)["grpc-retry-pushback-ms"] == "1000"
    assert observed.sheds == [("held", "client_limit")] * 3
    until(lambda: len(limited.clients) == 0)


def calls_of(context: DoorContext) -> int:
    client = context.clients.find("127.0.0.1")
    return 0 if client is None else client.calls
