"""The script of W9 and W12 in its quick form, from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

import rows

SCRIPT = Path(__file__).resolve().parents[1] / "reload.py"


@pytest.mark.slow
def test_the_quick_form_measures_every_row(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", str(target)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    written = rows.read(target)
    assert written.quick
    ids = [row.id for row in written.rows]
    assert ids.count("W9") == 6
    assert ids.count("W12") >= 4
    assert all(row.value is not None for row in written.rows)
    failed = [row.value for row in written.rows if "failed requests" in row.what]
    assert failed == [0, 0, 0]
