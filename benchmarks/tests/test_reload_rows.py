"""The scripts of reloads in their quick forms, from the command line."""

from pathlib import Path

import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick

FOLDER = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_quick_form_measures_every_row(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    script = FOLDER / "reload.py"
    written = rows.read(run_quick(script, tmp_path, "--pictures", str(pictures)))

    assert written.quick
    ids = [row.id for row in written.rows]
    assert ids.count("W9") == 18
    assert ids.count("W10") == 2
    assert ids.count("W12") >= 4
    assert ids.count("W13") == 2
    assert ids.count("W14") == 1
    assert [path.name for path in pictures.iterdir()] == ["reload_deltas.png"]
    assert all(row.value is not None for row in written.rows)
    failed = [row.value for row in written.rows if "failed requests" in row.what]
    assert failed == [0] * 7


@pytest.mark.slow
def test_the_quick_form_of_deltas_for_hours_measures_every_row(tmp_path: Path) -> None:
    script = FOLDER / "delta_endurance.py"
    written = rows.read(run_quick(script, tmp_path, "--pictures", str(tmp_path)))

    assert written.quick
    ids = [row.id for row in written.rows]
    assert ids.count("X12") >= 3
    assert ids.count("X13") == 4
    assert all(row.value is not None for row in written.rows)
    assert (tmp_path / "delta_memory.png").stat().st_size > 1000
