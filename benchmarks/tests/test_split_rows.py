"""The script of W5 and W6 in its quick form, from the command line."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick
from split_models import ENCODERS, LARGE_TABLES, USERS_ONCE, make_inputs

SCRIPT = Path(__file__).resolve().parents[1] / "split.py"


@pytest.mark.parametrize("recipe", [*ENCODERS, *USERS_ONCE], ids=lambda recipe: recipe.name)
def test_users_are_sent_once_or_tiled(recipe: object, tmp_path: Path) -> None:
    assert isinstance(recipe, type(ENCODERS[0]))
    model = recipe.write(tmp_path, quick=True)

    once, tiled = make_inputs(model, 7, once=True), make_inputs(model, 7)

    for name in model.inputs:
        assert len(once[name]) == (1 if name in model.users else 7)
        assert np.array_equal(np.broadcast_to(once[name], tiled[name].shape), tiled[name])


def test_both_forms_are_one_model(tmp_path: Path) -> None:
    model = LARGE_TABLES[0].write(tmp_path, quick=True)

    for file in ("model.onnx", "tables.bin"):
        own, whole = (tmp_path / name / "1" / file for name in (model.name, model.whole))
        assert own.read_bytes() == whole.read_bytes()
    assert "split: off" in (tmp_path / model.whole / "model.yaml").read_text()


@pytest.mark.slow
def test_the_quick_form_measures_every_row(tmp_path: Path) -> None:
    written = rows.read(run_quick(SCRIPT, tmp_path))

    assert written.quick
    ids = [row.id for row in written.rows]
    assert ids.count("W5") == len(LARGE_TABLES) + 2
    assert ids.count("W6") >= 2 * (len(ENCODERS) + len(USERS_ONCE)) + 1
    absent = [row.reason or "" for row in written.rows if row.value is None]
    if shutil.which("wrk") is None:  # then those that it measures say so
        assert all(reason.startswith("wrk is not installed") for reason in absent)
    else:
        assert not absent
