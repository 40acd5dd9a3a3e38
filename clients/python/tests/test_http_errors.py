import pytest

from anabranch_client import error_from_http
from anabranch_wire import errors
from anabranch_wire.errors import (
    AnabranchError,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    Overloaded,
    Unavailable,
)

KINDS = [getattr(errors, name) for name in errors.__all__ if name != "AnabranchError"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_rebuilt_from_its_answer(kind: type[AnabranchError]) -> None:
    headers = {"retry-after": "1"} if kind is Overloaded else {}

    found = error_from_http(kind.http, b'{"error": "why"}', headers)

    assert found.message == "why"
    shares = {  # statuses with these
        errors.Corrupt: Internal,
        errors.DeviceLost: errors.Unavailable,
        errors.Mismatch: InvalidInput,
        errors.Unproven: Internal,
    }
    assert type(found) is shares.get(kind, kind)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"anabranch-retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "3"}, 3.0),
    ],
)
def test_overload_keeps_its_advice(headers: dict[str, str], seconds: float) -> None:
    found = error_from_http(503, b"", headers)
    assert isinstance(found, Overloaded)
    assert found.retry_after_s == seconds


@pytest.mark.parametrize("advice", ["", "soon", "-1", "1.5", "9" * 20, "²"])
def test_advice_that_is_none_is_no_overload(advice: str) -> None:
    assert type(error_from_http(503, b"", {"retry-after": advice})) is Unavailable


@pytest.mark.parametrize(
    ("status", "kind"),
    [(408, DeadlineExceeded), (418, InvalidInput), (429, Overloaded), (502, Unavailable),
     (507, Internal), (302, Internal)],
)  # fmt: skip
def test_statuses_of_gateways_give_the_nearest_kind(
    status: int, kind: type[AnabranchError]
) -> None:
    assert type(error_from_http(status, b"", {})) is kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "HTTP 500: no reason given"),
        (b'{"error": 5}', 'HTTP 500: {"error": 5}'),
        (b"\xff" + b"x" * 1000, "HTTP 500: \N{REPLACEMENT CHARACTER}" + "x" * 199),
    ],
)
def test_other_bodies_are_shown(body: bytes, message: str) -> None:
    assert error_from_http(500, body, {}).message == message
