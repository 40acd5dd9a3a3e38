import pytest

from anabranch_server.limits import Limits
from anabranch_server.rpc.envelope import check_envelope
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.oip import ModelInferRequest

LIMITS = Limits(max_tensors=4)
PADDING = b"\x3a\x80\x80\x08" + b"\0" * 131_072
"""A raw content of 128 KiB, which makes any message worth a look."""


def test_a_large_request_within_its_limits_passes() -> None:
    request = ModelInferRequest(model_name="m", id="r")
    for index in range(4):
        request.inputs.add(name=f"x{index}", datatype="FP32", shape=[1, 50_000])
        request.raw_input_contents.append(bytes(200_000))
        request.outputs.add(name=f"y{index}")
        request.parameters[f"p{index}"].int64_param = index

    check_envelope(request.SerializeToString(), LIMITS)


@pytest.mark.parametrize(
    "field",
    [b"\x08\x96\x01", b"\x09" + bytes(8), b"\x0d" + bytes(4), b"\x0a\x01x"],
    ids=["varint", "fixed64", "fixed32", "delimited"],
)
def test_fields_of_every_kind_are_walked(field: bytes) -> None:
    check_envelope(PADDING + field, LIMITS)


def test_many_fields_are_refused_and_small_messages_not_looked_at() -> None:
    with pytest.raises(TooLarge, match="too many fields"):
        check_envelope(b"\x2a\x00" * 40_000, LIMITS)

    check_envelope(b"\x2a\x00" * 30_000, LIMITS)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x0a\x02x", "reaches past its end"),
        (b"\x09" + bytes(7), "reaches past its end"),
        (b"\x80", "no number"),
        (b"\x08", "no number"),
        (b"\xff" * 11, "no number"),
    ],
)
def test_fields_that_do_not_line_up_are_refused(tail: bytes, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        check_envelope(PADDING + tail, LIMITS)
