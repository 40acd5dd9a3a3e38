"""The script of W8, W8b and W11 in its quick form, from the command line."""

from pathlib import Path

import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick
from overload import Point, plot
from session_group import executor_counts

SCRIPT = Path(__file__).resolve().parents[1] / "session_group.py"


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))]
)
def test_executors_are_counted_up_to_the_cores(cores: int, counts: tuple[int, ...]) -> None:
    assert executor_counts(cores) == counts


def test_the_plot_shows_every_load() -> None:
    drawn = plot([Point(0.5, 0.5, 0.0), Point(1.0, 0.98, 3.0), Point(2.0, 0.95, 20.0)], 800.0)

    assert drawn.count("<circle") == 3 + 2  # nothing was refused at half the capacity
    assert "800 requests/s" in drawn


@pytest.mark.slow
def test_the_quick_form_measures_every_row(tmp_path: Path) -> None:
    written = rows.read(run_quick(SCRIPT, tmp_path))

    assert written.quick
    ids = [row.id for row in written.rows]
    assert ids.count("W11") == 3
    assert ids.count("W8b") == 1
    assert ids.count("W8") >= 1
    assert all(row.value is not None for row in written.rows)
