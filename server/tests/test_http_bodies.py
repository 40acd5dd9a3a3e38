import pytest

from anabranch_server.http.bodies import is_long
from anabranch_server.http.heads import RequestHead


@pytest.mark.parametrize(
    ("head", "size", "long"),
    [
        (RequestHead(), 100_000, False),
        (RequestHead(), 200_000, True),
        (RequestHead(json_bytes=200), 400_000, False),
        (RequestHead(json_bytes=200_000), 400_000, True),
        (RequestHead(json_bytes=200), 1_000_000, True),  # may be 250,000 empty strings
        (RequestHead(json_bytes=0), 1_000_000, True),
        (RequestHead(coding="gzip"), 1_000, False),
        (RequestHead(coding="gzip"), 10_000, True),
    ],
)
def test_bodies_that_take_long_are_not_decoded_on_the_loop(
    head: RequestHead, size: int, long: bool
) -> None:
    assert is_long(head, size) is long
