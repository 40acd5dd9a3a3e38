"""S1 to S9 and S11 to S13: the embedding store on one core, against limits and against peers.

All that a row compares alternates within one process, pinned to the first usable core; a writer or
control beside it has the last one. Time is the CPU time of the measuring thread, but for S9, S12's
two cores and what X10 says. fbgemm, torch and the key-value stores come from `make peers`; their
environment's packages join the path of this process behind its own (`peers/store`), so this runs
like the others: `.venv/bin/python benchmarks/lookup.py --only S1,S3`. Limits and lookups without
versions are native code that is built on first use (`lookup_yardstick.py`; 1 to 2 minutes).

Segments are written to a scratch folder on the disk (`--scratch`), 15 GB at most, and removed.
About how long each takes, and the memory it holds at most:

| rows | minutes | GiB |
|---|---|---|
| S1, S2, S5 | 6 | 4 |
| S3, S4, S11, X10 | 6 | 2 |
| S6, S7 | 2 | 2.5 |
| S8, S9 | 1 | 2.5 |
| S12 | 6 | 8 as f16; 13 as f32, which is taken where 16 are free |
| S13 | 4 | 2 |
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

import lookup_changes
import lookup_churn
import lookup_fused
import lookup_key_values
import lookup_memory
import lookup_scale
import lookup_single
import rows as results
from lookup_run import Run

Part = Callable[[Run, frozenset[str]], Iterator[results.Row]]

PARTS: Final[tuple[tuple[frozenset[str], Part], ...]] = (
    (lookup_single.IDS, lookup_single.single_rows),
    (lookup_fused.IDS, lookup_fused.fused_rows),
    (lookup_changes.IDS, lookup_changes.change_rows),
    (lookup_memory.IDS, lookup_memory.memory_rows),
    (lookup_scale.IDS, lookup_scale.scale_rows),
    (lookup_churn.IDS, lookup_churn.churn_rows),
    (lookup_key_values.IDS, lookup_key_values.key_value_rows),
)
"""Which rows each part measures."""


def main() -> None:
    """Measure, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and short; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--only", type=_ids, help="rows to measure, such as S1,S3")
    parser.add_argument("--scratch", type=Path, help="folder for segments; default: temporary")
    options = parser.parse_args()
    wanted: frozenset[str] = options.only or frozenset().union(*(ids for ids, _ in PARTS))
    measured: list[results.Row] = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        run = Run.here(Path(scratch), is_quick=options.quick)
        machine = results.machine()  # before it is this core only
        os.sched_setaffinity(0, {run.readers_core})
        for ids, part in PARTS:
            if wanted & ids:
                measured += (replace(row, machine=machine) for row in part(run, wanted))
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def _ids(text: str) -> frozenset[str]:
    known = frozenset().union(*(ids for ids, _ in PARTS))
    ids = frozenset(text.split(","))
    if not ids <= known:
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(ids - known))}: expected some of {', '.join(sorted(known))}"
        )
    return ids


if __name__ == "__main__":
    main()
