"""X9: how long a thread may keep the interpreter's lock while another one waits for it.

CPython asks the holder of the lock to let go after `sys.setswitchinterval`, 5 ms by default. A
server with an event loop, executors and builders hands the lock over all the time. One server for
each interval, on one core; single rows in an open loop at a third of the bare loop's rate, alone
and beside long JSON requests (Python at work). The intervals alternate.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import rows as results
from anabranch_testing.servers import started_server
from bare_loop import measure
from ctr_mlp import INPUT, Material, make_rows, write
from open_loops import OpenLoad, run_open_loop
from openloop import Background, HttpTransport, Plan, post

INTERVALS_S: Final = (0.005, 0.002, 0.0005, 0.0001)
"""The first is the interpreter's own."""

DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop")
_CONNECTIONS: Final = 16
_SHARE: Final = 0.33
_LONG_ROWS: Final = 256
_LONG_PER_S: Final = 10.0


def main() -> None:
    """Measure, print one table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    rounds, seconds = (1, 0.5) if options.quick else (results.ROUNDS, 4.0)
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        material = write(Path(scratch), [1, _LONG_ROWS])
        measured = list(_rows(material, Path(scratch), cores, rounds, seconds))
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def _rows(
    material: Material, scratch: Path, cores: list[int], rounds: int, seconds: float
) -> Iterator[results.Row]:
    bare = measure(material.graph, {INPUT: make_rows(1)}, min(seconds, 1.0))
    rate = _SHARE * bare.runs_per_s
    with ExitStack() as servers:
        addresses = {
            interval_s: servers.enter_context(
                started_server(
                    material.repository, _folder(scratch, interval_s), "--settle-s", "0",
                    "--workers", "1", "--config", str(_settings(scratch, interval_s)),
                    prefix=("taskset", "-c", str(cores[0])),
                )
            ).http
            for interval_s in INTERVALS_S
        }  # fmt: skip
        for beside in (False, True):
            p99: dict[float, list[float]] = {interval_s: [] for interval_s in INTERVALS_S}
            p50: dict[float, list[float]] = {interval_s: [] for interval_s in INTERVALS_S}
            for _ in range(rounds):
                for interval_s, address in addresses.items():
                    load = OpenLoad(
                        address, material.body("binary", 1), _CONNECTIONS, cores[-1], 5.0
                    )
                    with ExitStack() as others:
                        if beside:
                            others.enter_context(_long_requests(material, address, seconds))
                        seen = run_open_loop(load, rate, seconds).counts.ok
                    p99[interval_s].append(seen.p99_ms)
                    p50[interval_s].append(seen.p50_ms)
            yield from _compared(p99, p50, rate, beside=beside)


def _compared(
    p99: dict[float, list[float]], p50: dict[float, list[float]], rate: float, *, beside: bool
) -> Iterator[results.Row]:
    """Each interval against the interpreter's own, by p99."""
    usual = INTERVALS_S[0]
    company = f"beside {_LONG_PER_S:g} JSON requests/s of {_LONG_ROWS} rows" if beside else "alone"
    for interval_s in INTERVALS_S[1:]:
        yield results.measured(
            "X9",
            f"CTR MLP, HTTP binary, N=1, {rate:,.0f} requests/s {company}: p99 with a switch "
            f"interval of {interval_s * 1e3:g} ms against {usual * 1e3:g} ms",
            [one / base for one, base in zip(p99[interval_s], p99[usual], strict=True)],
            yardstick=f"{usual * 1e3:g} ms: p99 {median(p99[usual]):.2f} ms",
            figures={
                "p99 ms": median(p99[interval_s]),
                "p50 ms": median(p50[interval_s]),
                "p50 ms at 5 ms": median(p50[usual]),
            },
            distributions=DISTRIBUTIONS,
        )


def _long_requests(material: Material, address: str, seconds: float) -> Background:
    body = material.body("json", _LONG_ROWS)
    request = post(address, body.target, body.path.read_bytes(), body.headers)
    plan = Plan(rate=_LONG_PER_S, seconds=seconds + 2.0, connections=2)
    return Background(plan, HttpTransport(address), [request])


def _folder(scratch: Path, interval_s: float) -> Path:
    folder = scratch / f"server-{interval_s:g}"
    folder.mkdir()
    return folder


def _settings(scratch: Path, interval_s: float) -> Path:
    file = scratch / f"settings-{interval_s:g}.yaml"
    file.write_text(f"runtime: {{gil_switch_interval_s: {interval_s:g}}}\n")
    return file


if __name__ == "__main__":
    main()
