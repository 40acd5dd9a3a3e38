"""Write `docs/benchmarks.md` from the JSON files in `benchmarks/results`.

The same files always give the same bytes, a missed target is called missed, and figures of smoke
runs never get in.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from rows import ROUNDS, ResultFile, Row, read

__all__ = ["check", "main", "render"]

_RESULTS: Final = Path(__file__).parent / "results"
_REPORT: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"

_AREAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "S": "Embedding store",
        "W": "Whole server",
        "F": "Features",
        "G": "GPU",
        "X": "Measured without a target",
    }
)

_INTRODUCTION: Final = f"""\
# Benchmarks

Written by `benchmarks/report.py` from `benchmarks/results/*.json`; changes belong there.

Every figure is the median of its rounds, with the lowest and highest behind it, and is relative to
a yardstick that was measured in the same run. A ratio counts as a met target only if at least
{ROUNDS} interleaved rounds were taken. Rows without a goal are peers, or are there to be seen.
"""


class _Run(NamedTuple):
    """What the rows of one run have in common."""

    command: str
    date: str
    machine: str
    versions: tuple[tuple[str, str], ...]


def main() -> int:
    """Write the report, or with `--check` only say whether it is up to date.

    Returns:
        0, or 1 for a stale report or results that cannot be reported.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="folder of JSON files")
    parser.add_argument("--output", type=Path, default=_REPORT, help="Markdown file to write")
    options = parser.parse_args()
    try:
        text = render(_read_all(options.results))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if not options.check:
        options.output.write_text(text)
    elif not options.output.exists() or options.output.read_text() != text:
        print(f"{options.output.name} is stale: run benchmarks/report.py", file=sys.stderr)
        return 1
    return 0


def render(files: Mapping[str, ResultFile]) -> str:
    """Return the report as Markdown.

    Args:
        files: file name -> its content; the names only decide the order.

    Raises:
        ValueError: see `check`.
    """
    for name, file in files.items():
        check(name, file)
    rows = [(row, _run_of(file, row)) for _, file in sorted(files.items()) for row in file.rows]
    runs = list(dict.fromkeys(run for _, run in rows))
    parts = [_INTRODUCTION, _summary([row for row, _ in rows])]
    for letter, area in _AREAS.items():
        chosen = [(row, runs.index(run) + 1) for row, run in rows if row.id[0] == letter]
        if chosen:
            parts.append(f"## {area}\n\n{_figures(sorted(chosen, key=_by_id))}")
    if runs:
        parts.append(f"## Runs\n\n{_runs(runs)}")
    return "\n".join(parts)


def check(name: str, file: ResultFile) -> None:
    """Refuse a file whose figures must not be reported.

    Raises:
        ValueError: it comes from a smoke run, or has a row of an unknown area, or a ratio with a
            goal but too few rounds.
    """
    if file.quick:
        raise ValueError(f"{name}: figures of a --quick run are not reported; measure it in full")
    for row in file.rows:
        if row.id[0] not in _AREAS:
            raise ValueError(f"{name}: row {row.id}: expected one of the areas {', '.join(_AREAS)}")
        decides = row.met is not None and row.unit == "x"
        if decides and len(row.rounds) < ROUNDS:
            raise ValueError(
                f"{name}: row {row.id} {row.what!r}: {len(row.rounds)} rounds, but a ratio with a "
                f"goal needs {ROUNDS}"
            )


def _read_all(folder: Path) -> dict[str, ResultFile]:
    return {path.name: read(path) for path in folder.glob("*.json")}


def _summary(rows: Sequence[Row]) -> str:
    """How many targets were met, and which were not."""
    decided = [row for row in rows if row.met is not None]
    missed = sorted((row for row in decided if not row.met), key=_id_order)
    if not decided:
        return "No target has been measured yet.\n"
    lines = [f"{len(decided)} figures with a goal: {len(decided) - len(missed)} reach it."]
    if missed:
        lines += ["", f"**Missed: {len(missed)}**", ""]
        lines += [f"- {row.id} {row.what}: {_value(row)}, goal {row.goal}" for row in missed]
    return "\n".join(lines) + "\n"


def _figures(rows: Iterable[tuple[Row, int]]) -> str:
    """Table of `rows`, each with the number of its run."""
    headings = ("", "what", "value", "goal", "", "yardstick", "also seen", "run")
    marks = {True: "met", False: "**missed**", None: ""}
    return _table(
        headings,
        [
            (
                row.id,
                row.what,
                _value(row),
                row.goal or "",
                marks[row.met],
                row.yardstick,
                ", ".join(f"{_number(value)} {unit}" for unit, value in row.figures.items()),
                str(run),
            )
            for row, run in rows
        ],
    )


def _runs(runs: Sequence[_Run]) -> str:
    """Table of where, when and with what the figures were taken."""
    return _table(
        ("run", "command", "date", "machine", "versions"),
        [
            (
                str(number),
                f"`{run.command}`",
                run.date,
                run.machine,
                ", ".join(f"{name} {version}" for name, version in run.versions),
            )
            for number, run in enumerate(runs, 1)
        ],
    )


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    cells = [headings, ["---"] * len(headings), *lines]
    rendered = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in cells)
    return "".join(f"| {line} |\n" for line in rendered)


def _value(row: Row) -> str:
    """The value with its spread, or why there is none."""
    if row.value is None:
        return f"not measured: {row.reason}"
    unit = "" if row.unit == "x" else f" {row.unit}"
    if len(row.rounds) < 2:
        return f"{_number(row.value)}{unit}"
    low, high = _number(min(row.rounds)), _number(max(row.rounds))
    return f"{_number(row.value)}{unit} ({low} to {high})"


def _number(value: float) -> str:
    """Three significant digits; whole numbers from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _run_of(file: ResultFile, row: Row) -> _Run:
    return _Run(file.command, row.date, row.machine, tuple(sorted(row.versions.items())))


def _by_id(entry: tuple[Row, int]) -> tuple[str, int, str]:
    return _id_order(entry[0])


def _id_order(row: Row) -> tuple[str, int, str]:
    """W2 before W10, W8 before W8b."""
    digits = "".join(character for character in row.id if character.isdigit())
    return row.id[0], int(digits), row.id[1 + len(digits) :]


if __name__ == "__main__":
    sys.exit(main())
