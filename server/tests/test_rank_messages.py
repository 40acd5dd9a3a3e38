import pytest

from anabranch_server.ranking.messages import parse_column, parse_outside, request_of
from anabranch_wire.errors import InvalidInput
from anabranch_wire.ranking import Column, RankRequest


def test_columns_stay_the_bytes_that_were_sent() -> None:
    message = RankRequest(
        model_name="ctr",
        model_version="42",
        id="r-1",
        top_k=2,
        outputs=["ctr", "cvr"],
        explain=True,
        timeout_us=20_000,
        priority=1,
        routing_key="9001",
    )
    age, ids = Column(floats=[3.5]), Column(int64s=[1, -2])
    message.user["age"].CopyFrom(age)
    message.candidates["item_id"].CopyFrom(ids)

    outside = parse_outside(message.SerializeToString())
    request = request_of(outside)

    assert (outside.model_name, outside.model_version) == ("ctr", "42")
    assert request.form == "message"
    assert request.user == {"age": age.SerializeToString()}
    assert request.candidates == {"item_id": ids.SerializeToString()}
    assert (request.top_k, request.outputs, request.explain) == (2, ("ctr", "cvr"), True)
    assert (request.id, request.timeout_s, request.priority) == ("r-1", 0.02, 1)
    assert request.routing_key == "9001"


def test_what_a_message_leaves_out() -> None:
    request = request_of(parse_outside(b""))

    assert (request.user, request.candidates) == ({}, {})
    assert (request.top_k, request.outputs, request.explain) == (0, (), False)
    assert (request.id, request.timeout_s, request.priority) == ("", None, 0)
    assert request.routing_key is None


def test_a_feature_without_a_column_is_empty_bytes() -> None:
    assert request_of(parse_outside(b"\x2a\x03\x0a\x01z")).candidates == {"z": b""}


def test_what_is_inside_a_column_is_not_looked_at() -> None:
    entry = b"\x0a\x01z\x12\x02\xff\xff"

    request = request_of(parse_outside(b"\x2a" + bytes([len(entry)]) + entry))

    assert request.candidates == {"z": b"\xff\xff"}
    with pytest.raises(InvalidInput, match="malformed Column"):
        parse_column(request.candidates["z"])


def test_fields_that_are_not_known_are_passed_by() -> None:
    assert request_of(parse_outside(b"\xfa\x01\x03abc")).candidates == {}


@pytest.mark.parametrize("body", [b"\xff", b"\x2a\x05ab", b"\x0a\x02\xc3\x28"])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="malformed RankRequest"):
        parse_outside(body)
