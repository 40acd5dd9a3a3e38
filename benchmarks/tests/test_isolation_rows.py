"""The script of S10 in its quick form, and that it would see a batch that is torn."""

from pathlib import Path

import numpy as np
import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick
from isolation_roles import is_torn

SCRIPT = Path(__file__).resolve().parents[1] / "isolation.py"
ALWAYS = 16 + 8
COLUMNS = ALWAYS + 16


def batch(version: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    out = np.full((50, COLUMNS), version, np.float32)
    out[:, ALWAYS:] *= version % 2
    return out


@pytest.mark.parametrize("version", [1, 6, 7])
def test_a_batch_of_one_version_is_whole(version: int) -> None:
    assert not is_torn(batch(version), version)


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("other", [5, 8])
def test_a_batch_of_another_version_is_seen(version: int, other: int) -> None:
    assert is_torn(batch(other), version)


@pytest.mark.parametrize("column", [0, 15, 16, ALWAYS, COLUMNS - 1])
@pytest.mark.parametrize("version", [6, 7])
def test_a_single_number_of_another_version_is_seen(version: int, column: int) -> None:
    out = batch(version)
    out[17, column] = version - 1

    assert is_torn(out, version)


def test_a_key_that_should_have_gone_is_seen() -> None:
    out = batch(6)
    out[3, ALWAYS:] = 5

    assert is_torn(out, 6)


@pytest.mark.slow
def test_the_quick_form_kills_and_tears_nothing(tmp_path: Path) -> None:
    written = rows.read(run_quick(SCRIPT, tmp_path))

    assert written.quick
    torn, checked = written.rows
    assert (torn.id, torn.value, torn.met) == ("S10", 0, True)
    assert checked.value is not None
    assert checked.value >= 1000
    assert checked.figures["rewrites"] > 1
