import os
from pathlib import Path

import pytest

from anabranch_server.supervisor.starvation import Starvation

TICKS = os.sysconf("SC_CLK_TCK")


def tell(proc: Path, states: str, used_s: float) -> None:
    """Write what the system says of a process, a letter for each thread."""
    fields = ["0"] * 10 + [str(int(used_s * TICKS)), "0"]
    for thread, state in enumerate(states):
        task = proc / "7" / "task" / str(thread)
        task.mkdir(parents=True, exist_ok=True)
        (task / "stat").write_text(f"{thread} (a ) b) {state} {' '.join(fields)}")
    (proc / "7" / "stat").write_text(f"7 (a ) b) {states[0]} {' '.join(fields)}")


@pytest.mark.parametrize(
    ("states", "used_s", "missed_s"),
    [
        ("R", 0.0, 10.0),  # wants one, has none
        ("T", 0.0, 10.0),
        ("SR", 0.0, 10.0),
        ("R", 10.0, 0.0),  # has one
        ("RR", 20.0, 0.0),
        ("R", 4.0, 6.0),
        ("S", 0.0, 0.0),  # waits for something else
        ("DS", 0.0, 0.0),
    ],
)
def test_only_wanting_in_vain_counts(
    tmp_path: Path, states: str, used_s: float, missed_s: float
) -> None:
    starvation = Starvation(7, tmp_path)
    tell(tmp_path, states, 1.0)
    assert starvation.look(100.0) == 0.0

    tell(tmp_path, states, 1.0 + used_s)

    assert starvation.look(110.0) == pytest.approx(missed_s, abs=2 / TICKS)


def test_a_process_that_has_ended_misses_nothing(tmp_path: Path) -> None:
    starvation = Starvation(7, tmp_path)
    assert starvation.look(1.0) == 0.0
    assert starvation.look(100.0) == 0.0


def test_it_reads_what_the_system_tells() -> None:
    starvation = Starvation(os.getpid())
    starvation.look(0.0)
    assert starvation.look(1e6) > 9e5  # this thread runs, and has not used that much
