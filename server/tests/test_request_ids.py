import pytest

from anabranch_server.request_ids import RequestIds


@pytest.mark.parametrize("sent", ["a", "abc-1", "with inner blank", "x" * 128, "~!"])
def test_a_fit_id_is_kept(sent: str) -> None:
    ids = RequestIds()

    assert ids.choose(sent) == sent
    assert ids.choose(sent.encode()) == sent


@pytest.mark.parametrize(
    "sent",
    [None, "", " ", " a", "a ", "x" * 129, "a\r\nb", "a\tb", "é", "\x7f", b"\xff", b"a\0b"],
)
def test_anything_else_is_replaced(sent: str | bytes | None) -> None:
    made = RequestIds().choose(sent)

    assert made != sent
    assert made.isascii()
    assert made.isprintable()
    assert 0 < len(made) <= 128


def test_made_ids_never_repeat() -> None:
    one, other = RequestIds(), RequestIds()
    made = [ids.choose(None) for ids in (one, other) for _ in range(1000)]

    assert len(set(made)) == 2000
