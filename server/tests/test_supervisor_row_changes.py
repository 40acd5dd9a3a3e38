"""Which delta changed a row last, from real run files."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_model_store.deltas.targets import RowChanges
from anabranch_server.processes.plans import RunPlan, VersionPlan
from anabranch_server.supervisor.row_changes import changed_by
from anabranch_testing.delta_runs import write_rows_run
from anabranch_testing.workers import scale_plan


def run(
    folder: Path, first: int, last: int, *written: int, deleted: tuple[int, ...] = ()
) -> RunPlan:
    """Write a run that writes and deletes keys of table 1."""
    values = np.zeros((len(written), 4), np.float32)
    changes = RowChanges(np.array(written, np.int64), values, np.array(deleted, np.int64))
    return write_rows_run(folder, first, last, {1: changes})


@pytest.fixture
def version(tmp_path: Path) -> VersionPlan:
    """Return version 1 at delta 7: of runs 1 to 4, 5, 6 and 7."""
    runs = (
        run(tmp_path, 1, 4, 1, 2, 3, -9),
        run(tmp_path, 5, 5, 2, 30),
        run(tmp_path, 6, 6, 3, deleted=(30,)),
        run(tmp_path, 7, 7, 2**62),
    )
    return msgspec.structs.replace(scale_plan(tmp_path, 1), delta=7, runs=runs)


def asked(version: VersionPlan, table: int, *keys: int) -> list[int | None]:
    return changed_by(version, table, np.array(keys, np.int64))


def test_the_last_delta_that_wrote_or_deleted_a_row_is_named(version: VersionPlan) -> None:
    assert asked(version, 1, 2, 30, 3, 2**62) == [5, 6, 6, 7]


def test_rows_that_none_changed_have_none(version: VersionPlan) -> None:
    assert asked(version, 1, 4, -(2**62)) == [None, None]
    assert asked(version, 0, 2) == [None]
    assert asked(version, 1) == []


def test_of_several_deltas_in_one_run_it_is_not_known(version: VersionPlan) -> None:
    assert asked(version, 1, 1, -9) == [None, None]


def test_the_newest_delta_is_known_as_long_as_it_has_a_run_of_its_own(
    version: VersionPlan, tmp_path: Path
) -> None:
    merged = run(tmp_path / "merged", 1, 7, 2, 3, 2**62)
    newest = run(tmp_path / "newest", 7, 7, 2)
    plan = msgspec.structs.replace(version, runs=(merged,), increment=newest)
    assert asked(plan, 1, 2, 3) == [7, None]

    several = run(tmp_path / "several", 6, 7, 2)
    assert asked(msgspec.structs.replace(plan, increment=several), 1, 2) == [None]


def test_a_file_that_is_gone_costs_no_answer(version: VersionPlan) -> None:
    Path(version.runs[2].path).unlink()

    assert asked(version, 1, 2, 2**62) == [None, 7]
