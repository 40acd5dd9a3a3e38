"""A trial store with runs replayed has the rows that all its deltas, one after the other, give."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.targets import RowChanges
from anabranch_model_store.store_trials import TrialStore
from anabranch_runtime.store import SegmentBuilder
from anabranch_testing.delta_runs import write_rows_run
from anabranch_testing.delta_targets import row_changes
from anabranch_wire.errors import Corrupt, Unavailable

DIM = 2
KEYS = range(-3, 12)


def segment(folder: Path) -> Path:
    """Two tables: 6 hashed keys, whose rows are their keys, and 4 row numbers."""
    with SegmentBuilder(folder, "rows.seg") as builder:
        keys = np.arange(6, dtype=np.int64)
        table = builder.table("hashed", DIM, rows=6)
        table.add(keys, np.repeat(keys[:, None], DIM, axis=1).astype(np.float32))
        table = builder.table("numbered", DIM, keys="dense_id", rows=4)
        table.add(None, np.zeros((4, DIM), np.float32))
        builder.finish()
    return folder / "rows.seg"


def run(folder: Path, number: int, changes: dict[int, RowChanges]) -> Path:
    return Path(write_rows_run(folder, number, number, changes).path)


Step = tuple[dict[int, float], set[int]]
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(KEYS), st.integers(-9, 9).map(float), max_size=8),
        st.sets(st.sampled_from(KEYS), max_size=8),
    ),
    max_size=6,
)


@given(STEPS)
@settings(max_examples=40)
def test_rows_are_those_after_the_last_run(steps: list[Step]) -> None:
    expected = {key: float(key) for key in range(6)}
    with tempfile.TemporaryDirectory() as root:
        runs = []
        for number, (rows, deleted) in enumerate(steps, 1):
            gone = deleted - rows.keys()
            values = np.repeat(np.array([*rows.values()], np.float32)[:, None], DIM, axis=1)
            change = row_changes(list(rows), values, list(gone))
            runs.append(run(Path(root), number, {0: change}))
            expected |= rows
            for key in gone:
                expected.pop(key, None)

        store = TrialStore(segment(Path(root)), runs)

        view, asked = store.view, np.array(KEYS, np.int64)
        found, there = view.generation.rows(0, asked, view.version)
        assert dict(zip(asked[there].tolist(), found[there, 0].tolist(), strict=True)) == expected


def test_row_numbers_are_replayed_too(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, number, {1: row_changes([3], np.full((1, DIM), float(number)))})
        for number in range(1, 40)
    ]

    view = TrialStore(segment(tmp_path), runs).view

    found, _ = view.generation.rows(1, np.arange(4), view.version)
    assert found[:, 0].tolist() == [0, 0, 0, 39]


def test_runs_of_another_store_and_missing_ones_are_refused(tmp_path: Path) -> None:
    place = segment(tmp_path)
    other = run(tmp_path, 1, {2: row_changes([1], np.ones((1, DIM)))})

    with pytest.raises(Corrupt, match="rows of table 2; the store has 2"):
        TrialStore(place, [other])
    other.unlink()
    with pytest.raises(Unavailable, match="cannot be read"):
        TrialStore(place, [other])
