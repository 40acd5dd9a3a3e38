"""Answers of ranking calls as values, and how gRPC calls fail as errors of the tree."""

import json

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_client.addresses import Address, read_addresses
from anabranch_client.grpc_errors import attempt_failed, error_from_grpc
from anabranch_client.policy import AttemptFailed, Blame
from anabranch_client.rank_json import decode_ranking as decode_json
from anabranch_client.rank_messages import decode_ranking as decode_message
from anabranch_wire import errors
from anabranch_wire.errors import Internal, InvalidInput, Overloaded, TooLarge
from anabranch_wire.ranking import FLOAT32, INT64, Column, RankResponse

ANSWER = {
    "model_name": "ctr",
    "model_version": "42",
    "delta": 17,
    "ids": [13, 11],
    "scores": [0.5, 0.25],
    "positions": [2, 0],
}
HERE = Address("grpc", "host", 1)


def test_an_answer_in_json_with_everything() -> None:
    explain = {
        "snapshot": {"step": 7, "event_time": 1.5, "age_s": 4.2},
        "missed": {"country": {"keys": 1, "user": True}, "x": {"keys": 2, "candidates": [0, 1]}},
        "defaulted": ["query"],
        "stages_ms": {"run": 0.5},
    }
    bad = [{"position": 1, "error": "feature 'price', candidate 1: ..."}]
    outputs = {"ctr": [0.5, 0.25], "both": [[1.0, 2.0], [3.0, 4.0]]}
    whole = {**ANSWER, "outputs": outputs, "explain": explain, "bad_candidates": bad, "new": 1}

    ranking = decode_json(json.dumps(whole).encode(), "id-1")

    assert (ranking.model, ranking.version, ranking.delta) == ("ctr", "42", 17)
    assert (ranking.ids.dtype.name, ranking.ids.tolist()) == ("int64", [13, 11])
    assert ranking.outputs["both"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert dict(ranking.bad_candidates) == {1: "feature 'price', candidate 1: ..."}
    assert ranking.request_id == "id-1"
    assert ranking.explanation is not None
    assert (ranking.explanation.step, ranking.explanation.age_s) == (7, 4.2)
    assert ranking.explanation.missed["x"].candidates == (0, 1)
    assert ranking.explanation.missed["country"].user
    assert ranking.explanation.defaulted == ("query",)


def test_bare_tokens_and_texts_in_json() -> None:
    body = json.dumps({**ANSWER, "ids": ["a", "b"], "scores": [0.5, float("nan")]}).encode()
    ranking = decode_json(body, "")
    assert ranking.ids.tolist() == ["a", "b"]
    assert np.isnan(ranking.scores[1])


@pytest.mark.parametrize(
    "change",
    [
        {"ids": None},
        {"scores": ["a"]},
        {"positions": [-1]},
        {"ids": [1 << 63]},
        {"outputs": {"a": [[1], [1, 2]]}},
        {"outputs": {"a": [{}]}},
        {"scores": [float("nan"), "a"]},
    ],
)
def test_json_of_another_form_is_the_servers_fault(change: dict[str, object]) -> None:
    with pytest.raises(Internal, match="not that of a rank call"):
        decode_json(json.dumps({**ANSWER, **change}).encode(), "")


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode()))
def test_whatever_comes_as_json_is_an_answer_or_the_servers_fault(body: bytes) -> None:
    with pytest.raises(Internal):
        decode_json(body, "")


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (Column(type=INT64, raw=np.array([13, 11], "<i8").tobytes()), [13, 11]),
        (Column(int64s=[13, 11]), [13, 11]),
        (Column(strings=[b"a", "ü".encode()]), ["a", "ü"]),
        (Column(floats=[0.5, 1.5], type=FLOAT32), [0.5, 1.5]),
    ],
)
def test_an_answer_in_a_message(ids: Column, found: list[object]) -> None:
    message = RankResponse(
        model_name="ctr",
        model_version="42",
        delta=17,
        ids=ids,
        scores=np.array([0.5, 0.25], "<f4").tobytes(),
        positions=np.array([2, 0], "<u4").tobytes(),
        outputs={"both": Column(type=FLOAT32, raw=np.arange(4, dtype="<f4").tobytes())},
    )
    message.bad_candidates.add(position=1, error="why")

    ranking = decode_message(message.SerializeToString(), "")

    assert ranking.ids.tolist() == found
    assert ranking.positions.tolist() == [2, 0]
    assert ranking.outputs["both"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert dict(ranking.bad_candidates) == {1: "why"}
    assert ranking.explanation is None


@given(st.binary(max_size=60))
def test_whatever_comes_as_a_message_is_an_answer_or_the_servers_fault(body: bytes) -> None:
    try:
        ranking = decode_message(body, "")
    except Internal:
        return
    assert len(ranking.scores) <= len(body)


@pytest.mark.parametrize("message", [{"scores": b"abc"}, {"ids": Column(strings=[b"\xff"])}])
def test_messages_of_another_form_are_the_servers_fault(message: dict[str, bytes]) -> None:
    body = RankResponse(**message).SerializeToString()  # type: ignore[arg-type]  # of many types
    with pytest.raises(Internal, match="not that of a rank call"):
        decode_message(body, "")


def test_every_status_has_a_kind_that_has_that_status() -> None:
    for code in grpc.StatusCode:
        if code is grpc.StatusCode.OK:
            continue
        error = error_from_grpc(code.name, "why", {})
        assert error.message == "why"
        foreign = {"UNKNOWN", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
        assert error.grpc == code.name or code.name in foreign


def failed(
    code: grpc.StatusCode, *metadata: tuple[str, str | bytes]
) -> AttemptFailed | TimeoutError:
    return attempt_failed(HERE, code, "why", metadata)


def test_advice_tells_overload_from_what_is_too_large() -> None:
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    busy = failed(exhausted, ("x-request-id", "1"), ("grpc-retry-pushback-ms", "250"))
    assert isinstance(busy, AttemptFailed)
    assert isinstance(busy.failure.error, Overloaded)
    assert (busy.failure.safe, busy.failure.blame) == (True, Blame.BUSY)
    assert busy.failure.wait_s == 0.25
    large = failed(exhausted, ("x-request-id", "1"))
    assert isinstance(large, AttemptFailed)
    assert isinstance(large.failure.error, TooLarge)
    assert not large.failure.safe
    grpcs = error_from_grpc("RESOURCE_EXHAUSTED", "Concurrent RPC limit exceeded!", {})
    assert isinstance(grpcs, Overloaded)


def test_a_server_can_say_that_it_should_not_be_asked_again() -> None:
    away = failed(grpc.StatusCode.UNAVAILABLE, ("grpc-retry-pushback-ms", "-1"))
    assert isinstance(away, AttemptFailed)
    assert not away.failure.safe


def test_what_was_lost_is_told_from_what_was_answered() -> None:
    late = grpc.StatusCode.DEADLINE_EXCEEDED
    assert isinstance(failed(late), TimeoutError)
    answered = failed(late, ("x-request-id", b"1"))
    assert isinstance(answered, AttemptFailed)
    assert isinstance(answered.failure.error, errors.DeadlineExceeded)
    for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        lost = failed(code)
        assert isinstance(lost, AttemptFailed)
        assert isinstance(lost.failure.error, errors.Unavailable)
        assert lost.failure.error.message == "host:1: why"
        assert (lost.failure.safe, lost.failure.blame) == (True, Blame.DOWN)
    wrong = failed(grpc.StatusCode.INVALID_ARGUMENT)
    assert isinstance(wrong, AttemptFailed)
    assert wrong.failure.final


def test_addresses() -> None:
    assert read_addresses("http://h") == (Address("http", "h", 80),)
    assert read_addresses(["grpc://a", "grpc://[::1]:9"])[1].authority == "[::1]:9"
    assert read_addresses("http://h:8000/p/")[0].prefix == "/p"


@pytest.mark.parametrize(
    "urls", [[], ["http://a", "grpc://b"], ["grpc://a/prefix"], [5], ["grpc://"], "grpc://u@h"]
)
def test_addresses_of_another_form_are_refused(urls: list[str]) -> None:
    with pytest.raises(InvalidInput, match="url"):
        read_addresses(urls)
