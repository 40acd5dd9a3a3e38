"""The page on what becomes of the lookups of real models says what is the case."""

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_testing.corpus import corpus_models

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_script_writes() -> None:
    if not corpus_models():
        pytest.skip("no corpus beside the checkout")

    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "model_coverage", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, f"run scripts/model_coverage\n{ran.stdout[:4000]}"


def test_at_least_95_of_100_embeddings_are_cut() -> None:
    page = (ROOT / "docs" / "model-coverage.md").read_text()

    (line,) = [line for line in page.splitlines() if line.startswith("| cut, of those")]
    cut, _, rest = line.split("|")[2].strip().partition(" of ")
    assert int(cut) >= 0.95 * int(rest.split()[0])
