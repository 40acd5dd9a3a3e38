"""Golden requests of deltas: proven on the rows, graphs and items as of that delta."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.deltas.delta_golden import delta_golden_notes
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.published import Published
from anabranch_testing.ranked_deltas import RankedShop, items_file
from anabranch_wire.errors import Corrupt, InvalidInput, Mismatch, Unavailable


@pytest.fixture
def shop(tmp_path: Path) -> RankedShop:
    return RankedShop(tmp_path)


def test_rows_weights_and_items_of_a_delta_are_proven_together(shop: RankedShop) -> None:
    new = items_file(shop.root / "new.parquet", {1: 5.0, 2: 6.0})
    shop.publish({1: [100, 200]}, weight=2.0, items={"items": new}, golden=[{1: 310.0, 2: 21.0}])

    made = shop.apply(1)

    assert made.fault is None
    assert made.target.snapshot.delta == 1
    assert made.notes == ()


def test_rows_of_all_deltas_before_count(shop: RankedShop) -> None:
    shop.publish({1: [100, 200]})
    shop.publish({2: [1, 1]})
    first = shop.apply(1)
    shop.publish(golden=[{1: 310.0, 2: 22.0, 3: 43.0}])

    assert shop.apply(3).target.snapshot.delta == 3
    assert shop.apply(3, first.target).target.snapshot.delta == 3


def test_another_score_refuses_the_delta_and_the_one_before_stays(shop: RankedShop) -> None:
    shop.publish({1: [100, 200]})
    shop.publish(weight=3.0, golden=[{1: 303.0}, {1: 999.0}])

    made = shop.apply(2)

    assert made.target.snapshot.delta == 1
    assert made.fault is not None
    assert (made.fault.sequence, made.fault.reason) == (2, "parity")
    assert isinstance(made.fault.error, Mismatch)
    assert "golden/0001.json" in made.fault.error.message
    assert "999" in made.fault.error.message


def test_a_difference_may_be_a_note_or_nothing(shop: RankedShop) -> None:
    shop.publish({1: [100, 200]}, golden=[{1: 0.0}])

    warned = shop.apply(1, shop.with_golden("warn"))
    assert warned.target.snapshot.delta == 1
    (note,) = warned.notes
    assert note.startswith("served though its golden requests fail (golden: warn): golden/0000.js")

    off = shop.apply(1, shop.with_golden("off"))
    assert (off.target.snapshot.delta, off.notes) == (1, ())


def test_a_request_that_does_not_fit_refuses_the_delta(shop: RankedShop) -> None:
    shop.publish(weight=3.0, golden=[{1: 3.0}])
    delta = Published(shop.target, LocalOrigin()).header(1)
    assert delta is not None
    folder = LocalOrigin().attempt(shop.target.folder, delta)
    for text, kind in (
        (b'{"request": {"candidates": {"item_id": [1]}}, "scores": {"ctr": [1]}}', "no output"),
        (b'{"request": {"candidates": {"item_id": ["x"]}}, "scores": {"y": [1]}}', "candidate 0"),
        (b"{", "golden/0000.json"),
    ):
        (folder / "golden/0000.json").write_bytes(text)
        with pytest.raises(InvalidInput, match=kind):
            delta_golden_notes(shop.target, folder, delta)


def test_a_version_that_does_not_rank_proves_nothing(shop: RankedShop) -> None:
    shop.publish(weight=3.0, golden=[{1: 3.0}])
    made = shop.apply(1, replace(shop.target, ranking=None))

    assert made.fault is not None
    assert made.fault.reason == "invalid"
    assert "model.yaml has no ranking section" in made.fault.error.message


def test_rows_that_are_gone_or_damaged_prove_nothing(shop: RankedShop) -> None:
    shop.publish({1: [100, 200]}, golden=[{1: 310.0}])
    made = shop.apply(1)
    (run,) = made.target.runs
    delta = Published(shop.target, LocalOrigin()).header(1)
    assert delta is not None
    folder = LocalOrigin().attempt(shop.target.folder, delta)
    assert delta_golden_notes(made.target, folder, delta) == ()

    data = run.path.read_bytes()
    os.chmod(run.path, 0o600)
    run.path.write_bytes(data.replace(np.float32(100).tobytes(), np.float32(101).tobytes()))
    with pytest.raises(Corrupt, match="rows of table 0 are not what they were"):
        delta_golden_notes(made.target, folder, delta)
    run.path.unlink()
    with pytest.raises(Unavailable, match="cannot be read"):
        delta_golden_notes(made.target, folder, delta)
