import grpc
import pytest

from anabranch_wire import errors
from anabranch_wire.errors import AnabranchError, InvalidInput, Overloaded, UnsupportedMedia

KINDS = [getattr(errors, name) for name in errors.__all__ if name != "AnabranchError"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_statuses_and_its_line_in_the_tree(kind: type[AnabranchError]) -> None:
    assert issubclass(kind, AnabranchError)
    assert 400 <= kind.http < 600
    assert kind.grpc in grpc.StatusCode.__members__
    drawn = next(line for line in str(errors.__doc__).splitlines() if f"- {kind.__name__} " in line)
    assert f" {kind.http}  {kind.grpc} " in drawn


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_carries_its_message(kind: type[AnabranchError]) -> None:
    error = kind("because")

    assert str(error) == error.message == "because"
    assert repr(error) == f"{kind.__name__}('because')"


def test_unsupported_media_is_the_callers_fault() -> None:
    assert issubclass(UnsupportedMedia, InvalidInput)
    assert UnsupportedMedia.grpc == InvalidInput.grpc


def test_overload_tells_when_to_come_back() -> None:
    assert Overloaded("full").retry_after_s == 1.0
    assert Overloaded("full", retry_after_s=0.25).retry_after_s == 0.25
