"""The rows of W7, measured for a moment: all but the speed are the same on every machine."""

from pathlib import Path

from split_precision import precision_rows


def test_every_row_of_w7_is_measured(tmp_path: Path) -> None:
    speed, error, moved = precision_rows(tmp_path / "precision", rounds=1, seconds=0.01)

    assert [row.id for row in (speed, error, moved)] == ["W7"] * 3
    assert speed.value is not None
    assert "f32 in the same process" in speed.yardstick
    assert error.met
    assert 0 < error.figures["score error"] <= 0.01
    assert 95 < error.figures["% of pairs in order"] <= 100
    assert moved.met
    assert moved.figures["rows proven independent"] == 1.0
