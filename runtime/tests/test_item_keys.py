"""Hashes of item ids and the search for them, against a plain reading of docs/formats.md."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime.ranking import item_keys
from anabranch_runtime.ranking.item_keys import (
    directory,
    find_rows,
    hash_integers,
    hash_strings,
    same_strings,
    spans,
)
from anabranch_runtime.ranking.requests import ArrayColumn

WORD = 2**64 - 1
SEEDS = st.integers(0, 7)
TEXTS = st.lists(st.binary(max_size=30), max_size=12)


def mix(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & WORD
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & WORD
    return x ^ x >> 33


def plain_hash(text: bytes, seed: int) -> int:
    found = mix(len(text) ^ seed)
    for at in range(0, len(text), 8):
        found = mix(found ^ int.from_bytes(text[at : at + 8], "little"))
    return found


def column(texts: list[bytes], before: bytes = b"") -> ArrayColumn:
    offsets = np.cumsum([len(before), *map(len, texts)], dtype=np.int64)
    return ArrayColumn(np.frombuffer(before + b"".join(texts), np.uint8), offsets)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), SEEDS)
def test_integers_are_hashed_as_written_down(keys: list[int], seed: int) -> None:
    found = hash_integers(np.array(keys, np.int64), seed)
    assert found.tolist() == [mix((key ^ seed) & WORD) for key in keys]


@given(TEXTS, SEEDS, st.binary(max_size=3))
def test_strings_are_hashed_as_written_down(texts: list[bytes], seed: int, before: bytes) -> None:
    found = hash_strings(column(texts, before), seed, 30)
    assert found.tolist() == [plain_hash(text, seed) for text in texts]


def test_long_strings_cost_no_more_than_short_ones() -> None:
    found = hash_strings(column([b"a", b"x" * 1000, b"bc"]), 0, 2)
    assert found[[0, 2]].tolist() == [plain_hash(b"a", 0), plain_hash(b"bc", 0)]
    assert found[1] == plain_hash(b"", 0)


@given(TEXTS, st.data(), st.integers(1, 40))
def test_strings_are_the_same_or_they_are_not(
    texts: list[bytes], data: st.DataObject, piece: int
) -> None:
    others = [
        data.draw(st.just(text) | st.binary(min_size=len(text), max_size=len(text)) | st.binary())
        for text in texts
    ]
    order = data.draw(st.permutations(range(len(texts))))
    rows = np.array(order, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_keys, "_PIECE", piece)
        found = same_strings(column(texts), rows, column(others, b"xyz"), rows)
    assert found.tolist() == [texts[row] == others[row] for row in order]


@given(
    st.sets(st.integers(0, 50) | st.integers(0, WORD) | st.integers(WORD - 50, WORD), max_size=60),
    st.lists(st.integers(0, 50) | st.integers(0, WORD)),
)
def test_hashes_are_found_wherever_they_lie(held: set[int], others: list[int]) -> None:
    table: NDArray[np.uint64] = np.array(sorted(held), np.uint64)
    first = directory(table)
    parts = [(one >> 32) * len(held) >> 32 for one in sorted(held)]
    assert first.tolist() == [sum(part < at for part in parts) for at in range(len(held))]
    asked = [*held, *others]
    found = find_rows(table, first, np.array(asked, np.uint64))
    place = {one: row for row, one in enumerate(sorted(held))}
    assert found.tolist() == [place.get(one, -1) for one in asked]


def test_spans_are_places_one_after_another() -> None:
    begins, lengths = np.array([5, 0, 9]), np.array([2, 0, 1])
    assert spans(begins, lengths).tolist() == [5, 6, 9]
    assert spans(begins[:0], lengths[:0]).tolist() == []
