"""The report says what the rows say, and refuses what must not be reported."""

from pathlib import Path

import pytest

import report
import rows

MET = rows.measured(
    "W10",
    "anabranch | one",
    [1.2] * 5,
    yardstick="bare loop",
    goal=">= 1.1",
    figures={"p99 ms": 0.7},
)
MISSED = rows.measured(
    "W2", "anabranch, N=256", [0.8, 0.9, 0.7, 0.8, 0.8], yardstick="", goal=">= 0.91"
)
PEER = rows.absent("W2", "Triton", "not installed: make peers")
COUNT = rows.measured("S10", "torn batches", [0], yardstick="", goal="= 0", unit="batches")


def file_of(*written: rows.Row, quick: bool = False) -> rows.ResultFile:
    return rows.ResultFile(command="benchmarks/x.py", quick=quick, rows=written)


def lines_of(text: str, heading: str) -> list[str]:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()


def run_main(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    output = folder / "benchmarks.md"
    words = ["report.py", "--results", str(folder), "--output", str(output), *arguments]
    monkeypatch.setattr("sys.argv", words)
    return report.main()


def test_rows_are_grouped_by_area_and_sorted_by_number() -> None:
    text = report.render({"b.json": file_of(MET, MISSED), "a.json": file_of(COUNT)})

    assert text.index("## Embedding store") < text.index("## Whole server")
    server = [line for line in lines_of(text, "Whole server") if line.startswith("| W")]
    assert [line.split(" | ")[0] for line in server] == ["| W2", "| W10"]


def test_a_missed_target_is_called_missed_with_its_spread() -> None:
    text = report.render({"a.json": file_of(MET, MISSED)})

    assert "2 figures with a goal: 1 reach it." in text
    assert "- W2 anabranch, N=256: 0.8 (0.7 to 0.9), goal >= 0.91" in text
    assert "| 0.8 (0.7 to 0.9) | >= 0.91 | **missed** |" in text


def test_an_absent_peer_shows_its_reason() -> None:
    assert "| not measured: not installed: make peers |" in report.render({"a.json": file_of(PEER)})


def test_cells_cannot_break_the_table() -> None:
    assert "anabranch \\| one" in report.render({"a.json": file_of(MET)})


def test_rows_name_the_run_they_come_from() -> None:
    text = report.render({"a.json": file_of(MET), "b.json": file_of(MISSED)})

    runs = [line for line in lines_of(text, "Runs") if line.startswith("| 1")]
    assert len(runs) == 1
    assert "`benchmarks/x.py`" in runs[0]
    assert MET.machine in runs[0]
    assert MET.date in runs[0]


def test_the_same_files_give_the_same_bytes_in_any_order() -> None:
    one, other = {"a.json": file_of(MET)}, {"b.json": file_of(MISSED, PEER)}

    assert report.render(one | other) == report.render(other | one)


def test_without_results_it_says_so() -> None:
    assert "No target has been measured yet." in report.render({})


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (file_of(MET, quick=True), "--quick"),
        (file_of(rows.measured("W1", "few", [2, 2], yardstick="", goal=">= 1")), "2 rounds"),
        (file_of(rows.measured("Q1", "unknown", [2], yardstick="")), "areas"),
    ],
)
def test_what_must_not_be_reported_is_refused(refused: rows.ResultFile, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        report.render({"a.json": refused})


def test_check_fails_until_the_report_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows.write(tmp_path / "a.json", file_of(MET))

    assert run_main(monkeypatch, tmp_path, "--check") == 1
    assert "stale" in capsys.readouterr().err
    assert run_main(monkeypatch, tmp_path) == 0
    assert run_main(monkeypatch, tmp_path, "--check") == 0
    rows.write(tmp_path / "a.json", file_of(MET, MISSED))
    assert run_main(monkeypatch, tmp_path, "--check") == 1


def test_a_damaged_file_gives_one_line_and_no_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text("{")

    assert run_main(monkeypatch, tmp_path) == 1
    assert capsys.readouterr().err.startswith("a.json: ")
    assert not (tmp_path / "benchmarks.md").exists()
