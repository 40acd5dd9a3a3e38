"""Rows tell the truth about themselves, and a file is read back as it was written."""

from pathlib import Path

import msgspec
import pytest

import rows


def row(**changes: object) -> rows.Row:
    made = rows.measured("W1", "anabranch", [1.2, 1.1, 1.3], yardstick="bare loop", goal=">= 1.1")
    return msgspec.convert({**msgspec.to_builtins(made), **changes}, type=rows.Row)


def test_value_is_the_median_of_the_rounds() -> None:
    assert rows.measured("W1", "x", [3.0, 1.0, 2.0], yardstick="").value == 2.0


@pytest.mark.parametrize(
    ("value", "goal", "met"),
    [
        (1.1, ">= 1.1", True),
        (1.09, ">= 1.1", False),
        (25.0, "<= 25", True),
        (1.0, "= 0", False),
        (None, ">= 1", None),
        (3.0, None, None),
    ],
)
def test_met_follows_value_and_goal(
    value: float | None, goal: str | None, met: bool | None
) -> None:
    assert rows.meets(value, goal) is met


@pytest.mark.parametrize("goal", ["1.1", "> 1", ">= fast", ">=1"])
def test_a_goal_of_another_form_is_refused(goal: str) -> None:
    with pytest.raises(ValueError, match="goal"):
        rows.meets(1.0, goal)


@pytest.mark.parametrize(
    "changes",
    [
        {"met": False},
        {"met": None},
        {"id": "fast"},
        {"value": 1.25},
        {"value": None, "met": None},
        {"reason": "not installed"},
        {"speed": 3},
    ],
)
def test_a_row_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        row(**changes)


def test_an_absent_peer_has_a_reason_and_no_value() -> None:
    peer = rows.absent("W1", "Triton", "not installed")

    assert (peer.value, peer.met, peer.reason) == (None, None, "not installed")


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    result = rows.ResultFile(command="benchmarks/x.py", quick=False, rows=(row(),))
    path = tmp_path / "results" / "x.json"

    rows.write(path, result)

    assert rows.read(path) == result
    assert [entry.name for entry in path.parent.iterdir()] == ["x.json"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"command": "c", "quick": false, "rows": [{"id": "W1"}]}')

    with pytest.raises(ValueError, match=r"x\.json: .*\$\.rows\[0\]"):
        rows.read(path)


def test_the_command_leaves_out_where_the_json_went(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/x/y/serving.py", "--only", "W1", "--json", "/tmp/a.json"])

    assert rows.command() == ".venv/bin/python benchmarks/serving.py --only W1"


def test_versions_name_python_and_what_is_installed() -> None:
    found = rows.versions(["msgspec", "no-such-distribution"])

    assert {"python", "msgspec"} <= found.keys()
    assert "no-such-distribution" not in found


def test_the_machine_is_one_line() -> None:
    assert "cores" in rows.machine()
    assert "\n" not in rows.machine()


def test_the_table_shows_missed_targets(capsys: pytest.CaptureFixture[str]) -> None:
    rows.show([rows.measured("W1", "slow", [0.5], yardstick="bare", goal=">= 1")])

    assert "MISSED" in capsys.readouterr().out
