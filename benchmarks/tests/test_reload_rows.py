"""The script of W9 and W12 in its quick form, from the command line."""

from pathlib import Path

import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick

SCRIPT = Path(__file__).resolve().parents[1] / "reload.py"


@pytest.mark.slow
def test_the_quick_form_measures_every_row(tmp_path: Path) -> None:
    written = rows.read(run_quick(SCRIPT, tmp_path))

    assert written.quick
    ids = [row.id for row in written.rows]
    assert ids.count("W9") == 6
    assert ids.count("W12") >= 4
    assert all(row.value is not None for row in written.rows)
    failed = [row.value for row in written.rows if "failed requests" in row.what]
    assert failed == [0, 0, 0]
