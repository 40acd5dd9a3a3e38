"""What every benchmark script writes: one row for each measured figure, one JSON file a script.

A row that has a goal says truthfully whether it was met: `met` is derived from `value` and `goal`
when a row is made, and a file in which they disagree is refused when it is read.
"""

import datetime
import importlib.metadata
import operator
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

__all__ = [
    "ROUNDS",
    "ResultFile",
    "Row",
    "absent",
    "command",
    "machine",
    "measured",
    "meets",
    "read",
    "show",
    "versions",
    "write",
]

ROUNDS: Final = 5
"""Interleaved rounds whose median decides a target; fewer are for `--quick` runs only."""

_ID: Final = re.compile(r"[A-Z][0-9]+[a-z]?")
_GOAL: Final = re.compile(r"(>=|<=|=) ([0-9]+(?:\.[0-9]+)?)")
_RELATIONS: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "=": operator.eq}
)


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure, with what it takes to believe it.

    Attributes:
        id: target of the project's list ("W1", "W8b"); X1, X2 ... for what has no target.
        what: what was measured, in words that stand alone.
        value: the median over `rounds`; None where nothing could be measured.
        goal: ">= 1.1", "<= 25" or "= 0"; None for peers and for figures that are only shown.
        met: whether `value` reaches `goal`; None without either of them.
        yardstick: what the value is relative to, with its own figure of the same run.
        machine: the line of `machine()`.
        versions: the answer of `versions()`.
        date: day of the measurement, YYYY-MM-DD, UTC.
        unit: unit of `value`; "x" for a ratio.
        rounds: the value of each round, in the order measured.
        figures: what else was seen, named with its unit ({"requests/s": 18790.0, "p99 ms": 0.7}).
        reason: why `value` is None.
    """

    id: str
    what: str
    value: float | None
    goal: str | None
    met: bool | None
    yardstick: str
    machine: str
    versions: dict[str, str]
    date: str
    unit: str = "x"
    rounds: tuple[float, ...] = ()
    figures: dict[str, float] = {}
    reason: str | None = None

    def __post_init__(self) -> None:
        """Check what must agree.

        Raises:
            ValueError: `id` or `goal` has another form, `met` is not what value and goal say,
                `value` is not the median of `rounds`, or exactly one of value and reason is not
                given. msgspec reports it as a `ValidationError` with the row's place in the file.
        """
        if _ID.fullmatch(self.id) is None:
            raise ValueError(f"id {self.id!r}: expected a letter and a number, as in W1 or W8b")
        if (self.value is None) == (self.reason is None):
            raise ValueError(
                f"row {self.id}: expected either a value or the reason why it has none"
            )
        if self.value is not None and self.value != statistics.median(self.rounds or [self.value]):
            raise ValueError(
                f"row {self.id}: value {self.value} is not the median of {self.rounds}"
            )
        if self.met is not meets(self.value, self.goal):
            raise ValueError(
                f"row {self.id}: met is {self.met}, but {self.value} against {self.goal}"
            )


class ResultFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run of one script wrote.

    Attributes:
        command: command line that measures it again, from the root of a checkout.
        quick: the run was a smoke test; its figures mean nothing and are never reported.
        rows: in the order measured.
    """

    command: str
    quick: bool
    rows: tuple[Row, ...]


def meets(value: float | None, goal: str | None) -> bool | None:
    """Whether `value` reaches `goal`; None when one of them is missing.

    Raises:
        ValueError: `goal` is not a relation and a number.
    """
    if goal is None:
        return None
    match = _GOAL.fullmatch(goal)
    if match is None:
        raise ValueError(f"goal {goal!r}: expected '>= 1.1', '<= 25' or '= 0'")
    return None if value is None else _RELATIONS[match[1]](value, float(match[2]))


def measured(
    id: str,
    what: str,
    rounds: Sequence[float],
    *,
    yardstick: str,
    goal: str | None = None,
    unit: str = "x",
    figures: Mapping[str, float] | None = None,
    distributions: Iterable[str] = (),
) -> Row:
    """Return the row of a figure that was measured in `rounds`, here and today.

    Args:
        id: see `Row`.
        what: see `Row`.
        rounds: the value of each round, at least one; `ROUNDS` of them for a figure that counts.
        yardstick: see `Row`.
        goal: see `Row`.
        unit: see `Row`.
        figures: see `Row`.
        distributions: names of the installed distributions whose versions matter.
    """
    value = statistics.median(rounds)
    return Row(
        id=id,
        what=what,
        value=value,
        goal=goal,
        met=meets(value, goal),
        yardstick=yardstick,
        machine=machine(),
        versions=versions(distributions),
        date=_today(),
        unit=unit,
        rounds=tuple(rounds),
        figures=dict(figures or {}),
    )


def absent(
    id: str,
    what: str,
    reason: str,
    *,
    goal: str | None = None,
    yardstick: str = "",
    unit: str = "x",
) -> Row:
    """Return the row of something that could not be measured here, such as a missing peer."""
    return Row(
        id=id,
        what=what,
        value=None,
        goal=goal,
        met=None,
        yardstick=yardstick,
        machine=machine(),
        versions=versions(()),
        date=_today(),
        unit=unit,
        reason=reason,
    )


def write(path: Path, result: ResultFile) -> None:
    """Write `result` as indented JSON; `path` has the old content or all of the new."""
    text = msgspec.json.format(msgspec.json.encode(result), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(text + b"\n")
    partial.replace(path)


def read(path: Path) -> ResultFile:
    """Read what `write` wrote.

    Raises:
        ValueError: the file is not of that form; the message names the file and the place.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=ResultFile)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name}: {error}") from error


def show(rows: Iterable[Row]) -> None:
    """Print `rows` as one table on stdout."""
    table = Table(box=box.SIMPLE)
    for heading in ("id", "what", "value", "goal", "met", "yardstick", "seen"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for row in rows:
        value = "-" if row.value is None else f"{row.value:.4g} {row.unit}"
        met = {True: "yes", False: "MISSED", None: ""}[row.met]
        seen = row.reason or ", ".join(f"{n:,.4g} {name}" for name, n in row.figures.items())
        table.add_row(row.id, row.what, value, row.goal or "", met, row.yardstick, seen)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def command() -> str:
    """Return the running command line as a reader would repeat it: no `--json FILE`, no paths."""
    words: list[str] = []
    arguments = iter(sys.argv[1:])
    for word in arguments:
        if word == "--json":
            next(arguments, None)
        elif not word.startswith("--json="):
            words.append(word)
    return " ".join([".venv/bin/python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


def machine() -> str:
    """Return one line on this machine: processor, usable cores, memory, kernel."""
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kernel = platform.release().split("-", maxsplit=1)[0]
    return f"{_processor()}, {cores} cores, {memory_bytes / 2**30:.0f} GiB, Linux {kernel}"


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Return name -> version of Python, of this checkout and of installed `distributions`.

    A distribution that is not installed is left out.
    """
    found = {"python": platform.python_version()}
    if (commit := _commit()) is not None:
        found["commit"] = commit
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _processor() -> str:
    """Model name of the processor; its architecture where the kernel names no model."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()


def _commit() -> str | None:
    """Short name of the checked-out commit, marked when files differ; None outside a checkout."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(
            describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
