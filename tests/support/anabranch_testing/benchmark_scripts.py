"""Benchmark scripts in their quick form, run as a user runs them."""

import subprocess
import sys
from pathlib import Path

__all__ = ["run_quick"]


def run_quick(script: Path, folder: Path, *options: str) -> Path:
    """Run a script with `--quick` and return the file with its rows, in `folder`."""
    target = folder / "rows.json"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", *options, "--json", str(target)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target
