"""The script of X9 in its quick form, from the command line."""

from pathlib import Path

import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick

SCRIPT = Path(__file__).resolve().parents[1] / "switch_interval.py"


@pytest.mark.slow
def test_the_quick_form_compares_every_interval_twice(tmp_path: Path) -> None:
    written = rows.read(run_quick(SCRIPT, tmp_path))

    assert written.quick
    assert [row.id for row in written.rows] == ["X9"] * 6
