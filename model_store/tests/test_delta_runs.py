"""Runs of deltas: written and read again, merged as if applied one by one, or found damaged."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.lineages import marks_of
from anabranch_model_store.deltas.run_writing import RunHead, write_run
from anabranch_model_store.deltas.runs import HEADER, RunFile, RunTable, sorted_rows
from anabranch_model_store.deltas.targets import RowChanges
from anabranch_wire.errors import AnabranchError, Corrupt, Unavailable, Unsupported

IDENTITY = "sha256:" + "5b" * 32
MARKS = marks_of([(3, 2**64 - 1), (4, 5), (9, 0), (17, 6)])
HEAD = RunHead(IDENTITY, 3, 17, (4, 9), MARKS)

Rows = dict[int, float | None]
"""Key -> first number of its row; None where it is deleted."""

KEYS = st.one_of(st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1))
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.floats(width=32, allow_nan=False)))


def changes(rows: Rows, dim: int = 3) -> RowChanges:
    """Return changes in the order of a dictionary."""
    keys = [key for key, value in rows.items() if value is not None]
    values = [[value] * dim for value in rows.values() if value is not None]
    return RowChanges(
        np.array(keys, np.int64),
        np.array(values, np.float32).reshape(len(keys), dim),
        np.array([key for key, value in rows.items() if value is None], np.int64),
    )


def table(number: int, rows: Rows, dim: int = 3) -> RunTable:
    """Return changes as runs have them."""
    return sorted_rows(number, changes(rows, dim))


def rows_of(one: RunTable) -> Rows:
    """Return what a table of a run says, key by key."""
    said: Rows = dict(zip(one.keys.tolist(), one.values[:, 0].tolist(), strict=True))
    return said | dict.fromkeys(one.deleted.tolist())


def written(
    folder: Path, sources: Sequence[Sequence[RunTable]], head: RunHead = HEAD, size: int = 1 << 24
) -> RunFile:
    """Return a run that was written and read."""
    write_run(folder, "a.run", head, sources, range_bytes=size)
    assert [path.name for path in folder.iterdir()] == ["a.run"]
    run = RunFile.open(folder / "a.run")
    run.verify()
    return run


def test_a_run_says_what_was_written(tmp_path: Path) -> None:
    run = written(tmp_path, [[table(2, {7: 1.5, -1: 2.5, 9: None}), table(0, {3: None}, dim=5)]])

    assert (run.first, run.last, run.identity, run.others) == (3, 17, IDENTITY, (4, 9))
    assert run.marks.tolist() == MARKS.tolist()
    assert run.bytes == run.path.stat().st_size
    assert run.rows == 4
    assert [(one.table, one.dim) for one in run.tables] == [(0, 5), (2, 3)]
    assert rows_of(run.tables[0]) == {3: None}
    assert run.tables[1].keys.tolist() == [-1, 7]
    assert run.tables[1].values.tolist() == [[2.5] * 3, [1.5] * 3]
    assert run.tables[1].deleted.tolist() == [9]
    run.release()
    assert run.tables[1].keys.tolist() == [-1, 7]


def test_a_run_of_nothing_is_a_run(tmp_path: Path) -> None:
    run = written(tmp_path, [[table(0, {})], []], RunHead(IDENTITY, 1, 1))
    assert (run.tables, run.others, run.rows) == ((), (), 0)


def test_of_a_key_that_is_there_twice_the_last_row_counts() -> None:
    one = sorted_rows(
        4,
        RowChanges(
            np.array([5, 2, 5, 2, 1]),
            np.arange(5, dtype=np.float32)[:, None],
            np.array([9, 8, 9]),
        ),
    )
    assert one.keys.tolist() == [1, 2, 5]
    assert one.values.tolist() == [[4], [3], [2]]
    assert one.deleted.tolist() == [8, 9]


@settings(max_examples=60)
@given(
    st.lists(st.dictionaries(st.integers(0, 2), CHANGES, max_size=2), max_size=5),
    st.sampled_from([1, 200, 1000, 1 << 24]),
)
def test_merging_is_applying_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, deltas: list[dict[int, Rows]], size: int
) -> None:
    expected: dict[int, Rows] = {}
    for delta in deltas:
        for number, rows in delta.items():
            expected.setdefault(number, {}).update(rows)
    sources = [[table(number, rows) for number, rows in delta.items()] for delta in deltas]

    run = written(tmp_path_factory.mktemp("runs"), sources, size=size)

    assert {one.table: rows_of(one) for one in run.tables} == {
        number: rows for number, rows in expected.items() if rows
    }


def test_long_runs_are_merged_range_by_range(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    expected = np.full(60_000, np.nan, np.float32)
    sources: list[list[RunTable]] = []
    for number in range(5):
        keys = random.integers(0, 60_000, 30_000)
        values = random.random((30_000, 2), np.float32)
        deleted = np.setdiff1d(random.integers(0, 60_000, 5000), keys)
        one = sorted_rows(0, RowChanges(keys, values, deleted))
        expected[one.keys] = one.values[:, 0]
        expected[one.deleted] = np.nan
        write_run(tmp_path, f"{number}.run", RunHead(IDENTITY, number + 1, number + 1), [[one]])
        sources.append(list(RunFile.open(tmp_path / f"{number}.run").tables))
    ranges: list[int] = []

    write_run(tmp_path, "all.run", HEAD, sources, lambda: ranges.append(0), range_bytes=100_000)

    run = RunFile.open(tmp_path / "all.run")
    run.verify()
    found = np.full(60_000, np.nan, np.float32)
    found[run.tables[0].keys] = run.tables[0].values[:, 0]
    np.testing.assert_array_equal(found, expected)
    assert len(ranges) > 2 * 150_000 * 40 / 100_000


def test_giving_up_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_run(tmp_path, "a.run", HEAD, [[table(0, {1: 1.0})]], stop)
    assert not list(tmp_path.iterdir())


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    run = written(tmp_path, [[table(1, {5: 1.0, 6: 2.0, 8: None})]])
    data = run.path.read_bytes()
    used = {*range(HEADER.itemsize + 64 + 8 + MARKS.nbytes)}
    for one in run.tables:
        for array in (one.keys, one.values, one.deleted):
            at = data.index(array.tobytes(), HEADER.itemsize + 64)
            used.update(range(at, at + array.nbytes))
    for at in sorted(used):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        path = tmp_path / "damaged.run"
        path.write_bytes(damaged)
        with pytest.raises(AnabranchError) as raised:
            RunFile.open(path).verify()
        assert isinstance(raised.value, Corrupt | Unsupported), at


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    run = written(tmp_path, [[table(1, {5: 1.0, 6: 2.0, 8: None})]])
    data = run.path.read_bytes()
    for length in range(len(data)):
        path = tmp_path / "cut.run"
        path.write_bytes(data[:length])
        with pytest.raises(Corrupt):
            RunFile.open(path)


@pytest.mark.parametrize("number", [1, 3])
def test_another_format_is_said_to_be_one(tmp_path: Path, number: int) -> None:
    run = written(tmp_path, [])
    data = bytearray(run.path.read_bytes())
    data[12] = number
    run.path.write_bytes(data)
    with pytest.raises(Unsupported, match=f"format {number}; this release reads 2"):
        RunFile.open(run.path)


def test_a_missing_run_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        RunFile.open(tmp_path / "none.run")
