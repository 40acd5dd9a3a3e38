"""The script of X9 in its quick form, from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

import rows

SCRIPT = Path(__file__).resolve().parents[1] / "switch_interval.py"


@pytest.mark.slow
def test_the_quick_form_compares_every_interval_twice(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", str(target)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    written = rows.read(target)
    assert written.quick
    assert [row.id for row in written.rows] == ["X9"] * 6
