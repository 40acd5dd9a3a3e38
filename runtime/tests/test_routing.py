from collections import Counter

import pytest

from anabranch_runtime.routing import place_of


@pytest.mark.parametrize(
    ("key", "place"),
    [(0, 0), (9, 1), (-1, 3), (2**64 - 1, 3), ("9", 1), ("-1", 3), ("0009", 1)],
)
def test_integers_belong_to_their_remainder_however_they_were_sent(
    key: str | int, place: int
) -> None:
    assert place_of(key, 4) == place


def test_texts_belong_to_one_place_for_ever() -> None:
    assert place_of("", 1000) == 0
    assert place_of("a", 2**32) == 0xC1D04330  # CRC-32C of "a"
    assert place_of("\ud800", 8) in range(8)


def test_texts_spread() -> None:
    counts = Counter(place_of(f"user-{number}", 6) for number in range(6000))

    assert len(counts) == 6
    assert max(counts.values()) < 1.2 * min(counts.values())
