"""W1 to W4 and W16: the whole server on one core against a bare ONNX Runtime loop on that core.

Server on core 0, load on core 1, everything interleaved: each round runs the bare loop, every case
of the server, every case of the peer, and the bare loop again; a ratio divides by the mean of the
two loops around it. The figure of a row is the median over the rounds.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

import rows as results
from anabranch_testing.server_processes import ServerProcesses
from anabranch_testing.servers import RunningServer, started_server
from bare_loop import Loop
from ctr_mlp import MODEL, Body, Form, Material, write
from loads import Load, MissingTool, run_h2load, run_wrk
from peers.triton import TritonServer, started_triton
from process_cpu import cpu_seconds

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop", "grpcio")
PLAIN: Final = "ctr_alone"
"""The same model, served without merging."""


@dataclass(frozen=True, slots=True)
class Case:
    """One load against one model.

    Attributes:
        id: target.
        what: in words.
        form: encoding of the body.
        rows: rows of a request.
        connections: requests in flight.
        model: served name.
        goal: of the ratio to the bare loop; None where only shown.
    """

    id: str
    what: str
    form: Form
    rows: int
    connections: int
    model: str = MODEL
    goal: str | None = None


CASES: Final = (
    Case("W1", "HTTP binary, N=1, 8 connections, merging off", "binary", 1, 8, PLAIN, ">= 0.5"),
    Case("W1", "HTTP binary, N=1, 8 connections, greedy merging", "binary", 1, 8, goal=">= 1.1"),
    Case("W1", "HTTP binary, N=1, 32 connections, greedy merging", "binary", 1, 32, goal=">= 1.5"),
    Case("W2", "HTTP binary, N=256, 8 connections", "binary", 256, 8, goal=">= 0.91"),
    Case("W3", "HTTP JSON, N=256, 8 connections", "json", 256, 8, goal=">= 0.6"),
    Case("W4", "gRPC (grpcio), N=1, 8 connections, merging", "grpc", 1, 8, goal=">= 0.24"),
    Case("W4", "gRPC (grpcio), N=256, 8 connections", "grpc", 256, 8, goal=">= 0.84"),
)
PEER_CASES: Final = tuple(case for case in CASES if case.model == MODEL)


@dataclass
class Seen:
    """Rounds of one case."""

    ratios: list[float] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    model_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    batch_rows: list[float] = field(default_factory=list)
    failure: str | None = None


def main() -> None:
    """Measure, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one load")
    parser.add_argument("--no-peers", action="store_true", help="leave Triton out")
    options = parser.parse_args()
    rounds, seconds = (1, 1.0) if options.quick else (results.ROUNDS, options.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        material = write(Path(scratch), [1, 256])
        _serve_alone_too(material)
        measured = list(_measure(material, Path(scratch), rounds, seconds, not options.no_peers))
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def _measure(
    material: Material, scratch: Path, rounds: int, seconds: float, peers: bool
) -> Iterator[results.Row]:
    ours = {case: Seen() for case in CASES}
    theirs = {case: Seen() for case in PEER_CASES}
    (scratch / "server").mkdir()
    prefix = ("taskset", "-c", str(SERVER_CORE))
    with (
        started_server(
            material.repository, scratch / "server", "--settle-s", "0", prefix=prefix
        ) as server,
        _peer(material, scratch, peers) as triton,
    ):
        for _ in range(rounds):
            for case in CASES:
                _run(case, ours[case], material, seconds, lambda c: _ours(server, c), server)
                if triton is not None and case in theirs:
                    _run(case, theirs[case], material, seconds, triton.address, None)
    for case in CASES:
        yield _row(case, ours[case])
    yield _p99_row(ours[CASES[3]])
    yield from _cpu_rows(material, ours, 0.3 if rounds == 1 else 1.5)
    for case in PEER_CASES:
        yield _peer_row(case, theirs[case], peers)


def _run(
    case: Case,
    seen: Seen,
    material: Material,
    seconds: float,
    address: Callable[[Case], str],
    server: RunningServer | None,
) -> None:
    """One round of one case between two bare loops."""
    before = _bare(material, case.rows, min(seconds, 1.0))
    body = _for_model(material.body(case.form, case.rows), case.model)
    run = run_h2load if case.form == "grpc" else run_wrk
    cpu = _cpu_seconds(server) if server else 0.0
    batches = _batches(server, case.model) if server else (0.0, 0.0)
    try:
        load = run(address(case), body, case.connections, seconds, LOAD_CORE)
    except (MissingTool, RuntimeError) as error:
        seen.failure = str(error)
        return
    if server is not None:
        seen.cpu_us.append((_cpu_seconds(server) - cpu) / load.requests * 1e6)
        count, total = (
            new - old for new, old in zip(_batches(server, case.model), batches, strict=True)
        )
        seen.batch_rows.append(total / count if count else float(case.rows))
    after = _bare(material, case.rows, min(seconds, 1.0))
    seen.loads.append(load)
    seen.ratios.append(load.per_s / ((before.runs_per_s + after.runs_per_s) / 2))
    seen.model_ms.append((before.p50_ms + after.p50_ms) / 2)


def _row(case: Case, seen: Seen) -> results.Row:
    what = f"CTR MLP, {case.what}"
    if not seen.ratios:
        return results.absent(case.id, what, seen.failure or "not run", goal=case.goal)
    return results.measured(
        case.id,
        what,
        seen.ratios,
        goal=case.goal,
        yardstick=f"bare loop, N={case.rows}, {median(seen.model_ms):.3f} ms a run",
        figures=_figures(seen),
        distributions=DISTRIBUTIONS,
    )


def _figures(seen: Seen) -> dict[str, float]:
    figures = {
        "requests/s": median([load.per_s for load in seen.loads]),
        "p50 ms": median([load.p50_ms for load in seen.loads]),
        "p99 ms": median([load.p99_ms for load in seen.loads]),
    }
    if seen.cpu_us:
        figures["server CPU us"] = median(seen.cpu_us)
        figures["rows a batch"] = median(seen.batch_rows)
    return figures


def _p99_row(seen: Seen) -> results.Row:
    what = "CTR MLP, HTTP binary, N=256, 8 connections: p99 against 8 runs of the model"
    if not seen.loads:
        return results.absent("W2", what, seen.failure or "not run", goal="<= 1.15")
    ratios = [
        load.p99_ms / (8 * model) for load, model in zip(seen.loads, seen.model_ms, strict=True)
    ]
    return results.measured(
        "W2",
        what,
        ratios,
        goal="<= 1.15",
        yardstick=f"8 x {median(seen.model_ms):.2f} ms",
        distributions=DISTRIBUTIONS,
    )


def _cpu_rows(material: Material, ours: dict[Case, Seen], seconds: float) -> Iterator[results.Row]:
    """W16: what a request costs the server beyond ONNX Runtime's own time at the same batch."""
    for case, what, goal in (
        (CASES[1], "HTTP binary, N=1, 8 connections", "<= 25"),
        (CASES[2], "HTTP binary, N=1, 32 connections", "<= 25"),
        (CASES[5], "gRPC (grpcio), N=1, 8 connections", "<= 200"),
    ):
        seen = ours[case]
        title = f"server CPU a request beyond ONNX Runtime, {what}"
        if not seen.cpu_us:
            yield results.absent("W16", title, seen.failure or "not run", goal=goal, unit="us")
            continue
        beyond = []
        for cpu, batch in zip(seen.cpu_us, seen.batch_rows, strict=True):
            low, high = int(batch), int(batch) + 1
            run_us = [_bare(material, n, seconds / 2).p50_ms * 1e3 for n in (low, high)]
            at_batch = run_us[0] + (batch - low) * (run_us[1] - run_us[0])
            beyond.append(cpu - at_batch / batch * case.rows)
        yield results.measured(
            "W16",
            title,
            beyond,
            goal=goal,
            unit="us",
            yardstick=f"bare loop at {median(seen.batch_rows):.1f} rows a batch",
            figures={"server CPU us": median(seen.cpu_us)},
            distributions=DISTRIBUTIONS,
        )


def _peer_row(case: Case, seen: Seen, asked: bool) -> results.Row:
    what = f"Triton (python backend, dynamic batching), {case.what.replace(' (grpcio)', '')}"
    if not seen.ratios:
        reason = seen.failure or (
            "Triton is not installed: make peers" if asked else "left out by --no-peers"
        )
        return results.absent("X1", what, reason)
    return results.measured(
        "X1",
        what,
        seen.ratios,
        yardstick=f"bare loop, N={case.rows}, {median(seen.model_ms):.3f} ms a run",
        figures=_figures(seen),
        distributions=("onnxruntime",),
    )


def _ours(server: RunningServer, case: Case) -> str:
    return server.grpc if case.form == "grpc" else server.http


@contextmanager
def _peer(material: Material, scratch: Path, wanted: bool) -> Iterator["_Triton | None"]:
    """The real Triton, where it is installed."""
    if not wanted or not TritonServer.is_installed():
        yield None
        return
    with started_triton(material.graph, scratch / "triton", core=SERVER_CORE) as triton:
        yield _Triton(triton)


@dataclass(frozen=True, slots=True)
class _Triton:
    server: TritonServer

    def address(self, case: Case) -> str:
        """Where the case goes."""
        return self.server.grpc if case.form == "grpc" else self.server.http


def _serve_alone_too(material: Material) -> None:
    """Serve the model a second time without merging, and time out nothing under full load."""
    queue = "queue: {default_timeout_ms: 20000}\n"
    (material.repository / MODEL / "serving.yaml").write_text(f"format: 1\n{queue}")
    alone = material.repository / PLAIN
    (alone / "1").mkdir(parents=True)
    (alone / "1" / "model.onnx").write_bytes(material.graph.read_bytes())
    (alone / "serving.yaml").write_text(f"format: 1\nbatching: {{merge: false}}\n{queue}")


def _for_model(body: Body, model: str) -> Body:
    return replace(body, target=body.target.replace(f"/{MODEL}/", f"/{model}/"))


def _bare(material: Material, rows: int, seconds: float) -> Loop:
    """The yardstick in a fresh process on the server's core."""
    answer = subprocess.run(
        [
            sys.executable, str(Path(__file__).with_name("bare_loop.py")), str(material.graph),
            "--rows", str(rows), "--seconds", str(seconds), "--core", str(SERVER_CORE),
        ],
        capture_output=True, check=True,
    )  # fmt: skip
    return msgspec.json.decode(answer.stdout, type=Loop)


def _cpu_seconds(server: RunningServer) -> float:
    """CPU time of all processes of the server so far."""
    return sum(map(cpu_seconds, ServerProcesses(server.process.pid).all()))


def _batches(server: RunningServer, model: str) -> tuple[float, float]:
    """Batches and rows that `model` has computed so far."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return (
        _total(text, "anabranch_batch_rows_count", model),
        _total(text, "anabranch_batch_rows_sum", model),
    )


def _total(text: str, name: str, model: str) -> float:
    pattern = rf'^{name}{{[^}}]*model="{model}"[^}}]*}} (\S+)$'
    return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))


if __name__ == "__main__":
    main()
