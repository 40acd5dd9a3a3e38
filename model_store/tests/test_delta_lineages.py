"""Which publication of a delta something is made of: told apart, compared, and found again."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_model_store.deltas.lineages import (
    NO_MARKS,
    is_part,
    is_published,
    joined,
    lineage_name,
    mark_of,
    marks_of,
    newest_of,
)
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.published import Published
from anabranch_testing.written_deltas import DeltaWriter, RowsWritten, StoreShape, store_target
from anabranch_wire.delta import Delta

NUMBERS = st.sets(st.integers(1, 400), max_size=40).map(sorted)


def rows(value: float) -> RowsWritten:
    return RowsWritten("emb", [1], np.full((1, 2), value, np.float32))


@pytest.fixture
def delta(tmp_path: Path) -> Delta:
    return DeltaWriter(tmp_path).write(3, rows(1))


def test_publications_of_a_number_have_marks_of_their_own(delta: Delta, tmp_path: Path) -> None:
    assert mark_of(delta) == mark_of(msgspec.structs.replace(delta, step=7, extra={"a": 1}))
    others = [
        msgspec.structs.replace(delta, attempt="f" * 16),
        msgspec.structs.replace(delta, replaces_from=1),
        DeltaWriter(tmp_path / "other").write(3, rows(2)),
        msgspec.structs.replace(
            delta, tables=(msgspec.structs.replace(delta.tables[0], name="x"),)
        ),
    ]
    assert len({mark_of(one) for one in (delta, *others)}) == 5


def test_names_of_lineages_tell_them_apart() -> None:
    every = [NO_MARKS, marks_of([(1, 2)]), marks_of([(2, 1)]), marks_of([(1, 2), (2, 1)])]
    assert len(set(map(lineage_name, every))) == 4
    assert lineage_name(joined(every[1:3])) == lineage_name(every[3])
    assert joined([]).tolist() == []


@given(NUMBERS, st.integers(1, 400), st.integers(1, 400))
def test_a_run_is_part_of_what_it_was_merged_into(
    numbers: list[int], first: int, last: int
) -> None:
    whole = marks_of([(number, number * 7) for number in numbers])
    own = [(number, number * 7) for number in numbers if first <= number <= last]

    assert is_part(marks_of(own), first, last, whole) == bool(own)
    if own:
        assert not is_part(marks_of([*own[:-1], (own[-1][0], 1)]), first, last, whole)
        assert not is_part(marks_of(own[1:]), first, last, whole)


@given(NUMBERS, st.integers(1, 500))
def test_the_newest_deltas_are_looked_at_and_always_the_last(
    numbers: list[int], since: int
) -> None:
    found = [number for number, _ in newest_of(marks_of([(n, 0) for n in numbers]), since)]
    assert found == [n for n in reversed(numbers) if n >= since or n == numbers[-1]]


def test_what_cannot_be_read_is_no_other_delta_and_no_fault(tmp_path: Path) -> None:
    target = store_target(tmp_path, StoreShape("emb", 3))
    deltas = [DeltaWriter(target.folder).write(number, rows(number)) for number in (1, 2, 3)]
    (target.folder / "deltas" / "00000001" / "delta.json").unlink()
    (target.folder / "deltas" / "00000002" / "delta.json").write_text("{")
    published = Published(target, LocalOrigin())
    marks = [(one.sequence, mark_of(one)) for one in deltas]

    assert is_published(marks, published)
    assert published.faults == {}
    assert not is_published([*marks[:2], (3, 0)], published)
    assert published.header(2) is None
    assert 2 in published.faults
    assert is_published(marks, published)
