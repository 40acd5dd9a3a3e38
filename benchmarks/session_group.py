"""W8, W8b and W11: executors against one shared session, and what happens beyond capacity.

W8 finds by open loop the highest rate at which the p99 keeps one bound, for a session that all
threads share and for 1 to all cores executors. W8b sends 1,024 rows to an idle server, in one piece
and cut over the executors. W11 holds 10,000 connections idle, then offers more than can be served
(`overload.py`), and draws it.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import onnx

import rows as results
from anabranch_testing.servers import RunningServer, started_server
from bare_loop import Loop, measure
from ctr_mlp import INPUT, MODEL, Material, make_rows, write
from open_loops import OpenLoad, highest_rate, run_open_loop
from overload import Sizes, overload_rows

ROWS: Final = 64
LARGE: Final = 1024
SHARED: Final = "ctr_shared"
DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop")
_BOUND_RUNS: Final = 10
"""The bound of the p99, in runs of the bare loop."""
_PLOT: Final = Path(__file__).parents[1] / "docs" / "images" / "overload.svg"


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where.

    Attributes:
        server: the server's.
        load: the generator's own; None where it shares the server's, because there are too few.
    """

    server: tuple[int, ...]
    load: int | None

    @classmethod
    def usable(cls) -> "Cores":
        """All cores of this process; from four on, the last one is the generator's."""
        every = tuple(sorted(os.sched_getaffinity(0)))
        return cls(every[:-1], every[-1]) if len(every) >= 4 else cls(every, None)

    def words(self) -> str:
        """How rows say it."""
        shared = "" if self.load is not None else ", shared with the load"
        return f"{len(self.server)} server cores{shared}"


def main() -> None:
    """Measure, print one table, write JSON and the plot where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, default=_PLOT, help="W11's plot; not with --quick")
    parser.add_argument("--only", choices=("W8", "W8b", "W11"), action="append")
    options = parser.parse_args()
    wanted: set[str] = set(options.only or ("W8", "W8b", "W11"))
    rounds, seconds = (1, 0.5) if options.quick else (results.ROUNDS, 3.0)
    sizes = Sizes.quick() if options.quick else Sizes()
    measured: list[results.Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        material = write(Path(scratch), [1, ROWS, LARGE])
        if wanted & {"W8", "W8b"}:
            measured += _group_rows(material, Path(scratch), wanted, rounds, seconds)
        if "W11" in wanted:
            plot = None if options.quick else options.plot
            measured += overload_rows(material, Path(scratch), sizes, plot)
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def executor_counts(cores: int) -> tuple[int, ...]:
    """Return powers of two up to `cores`, and `cores` itself."""
    powers = (2**power for power in range(cores.bit_length()))
    return tuple(sorted({*(count for count in powers if count <= cores), cores}))


def _group_rows(
    material: Material, scratch: Path, wanted: set[str], rounds: int, seconds: float
) -> Iterator[results.Row]:
    cores = Cores.usable()
    counts = executor_counts(len(cores.server))
    _write_models(material, scratch / "shared_models", counts, len(cores.server))
    with (
        _served(material.repository, scratch / "groups", cores) as server,
        # ONNX Runtime takes the options of the shared session from its model file.
        _served(
            scratch / "shared_models", scratch / "shared", cores,
            "env", "ORT_LOAD_CONFIG_FROM_MODEL=1",
        ) as shared,
    ):  # fmt: skip
        addresses = {_model(count): server.http for count in counts}
        addresses[SHARED] = shared.http
        loads = _Loads(material, addresses, cores.load)
        if "W8" in wanted:
            yield from _shared_rows(loads, cores, counts, rounds, seconds)
        if "W8b" in wanted:
            yield _split_row(loads, cores, counts[-1], rounds, seconds)


@contextmanager
def _served(repository: Path, folder: Path, cores: Cores, *words: str) -> Iterator[RunningServer]:
    """One worker on the server's cores."""
    folder.mkdir()
    pin = ("taskset", "-c", ",".join(map(str, cores.server)))
    with started_server(
        repository, folder, "--settle-s", "0", "--workers", "1", prefix=(*words, *pin)
    ) as server:
        yield server


@dataclass(frozen=True, slots=True)
class _Loads:
    """Loads by model.

    Attributes:
        material: has the bodies.
        addresses: model -> HTTP door of the server that serves it.
        core: of the generator; None lets it run anywhere.
    """

    material: Material
    addresses: Mapping[str, str]
    core: int | None

    def of(self, model: str, rows: int) -> OpenLoad:
        """Requests of so many rows for the model."""
        body = self.material.body("binary", rows)
        target = body.target.replace(f"/{MODEL}/", f"/{model}/")
        return OpenLoad(self.addresses[model], replace(body, target=target), 256, self.core, 10.0)


def _shared_rows(
    loads: _Loads,
    cores: Cores,
    counts: Sequence[int],
    rounds: int,
    seconds: float,
) -> Iterator[results.Row]:
    """W8: rate within the bound, each number of executors against the shared session."""
    models = (SHARED, *(_model(count) for count in counts))
    rates: dict[str, list[float]] = {model: [] for model in models}
    bounds = []
    for _ in range(rounds):
        bare = _bare(loads.material, ROWS, min(seconds, 1.0))
        bounds.append(_BOUND_RUNS * bare.p50_ms)
        for model in models:
            load = loads.of(model, ROWS)
            rates[model].append(_best_rate(load, bare, bounds[-1], len(cores.server), seconds))
    shared = rates[SHARED]
    for count in counts:
        ratios = [
            one / base if base else 0.0
            for one, base in zip(rates[_model(count)], shared, strict=True)
        ]
        yield results.measured(
            "W8",
            f"CTR MLP, HTTP binary, N={ROWS}: rate at equal p99, {count} executors against one "
            f"session shared by {len(cores.server)} threads ({cores.words()})",
            ratios,
            yardstick=f"shared session, {median(shared):,.0f} requests/s, one executor",
            figures={
                "requests/s": median(rates[_model(count)]),
                "p99 bound ms": median(bounds),
            },
            distributions=DISTRIBUTIONS,
        )


def _best_rate(load: OpenLoad, bare: Loop, bound_ms: float, cores: int, seconds: float) -> float:
    def is_good(rate: float) -> bool:
        seen = run_open_loop(load, rate, seconds).counts
        return not seen.failed and seen.ok.p99_ms <= bound_ms

    ideal = bare.runs_per_s * cores
    return highest_rate(is_good, 0.05 * ideal, 1.3 * ideal, 0.05 if seconds >= 1 else 0.5)


def _split_row(
    loads: _Loads,
    cores: Cores,
    executors: int,
    rounds: int,
    seconds: float,
) -> results.Row:
    """W8b: one large request at a time, whole and cut."""
    bare = _bare(loads.material, LARGE, min(seconds, 1.0))
    rate = 0.25 * bare.runs_per_s
    whole: list[float] = []
    cut: list[float] = []
    for _ in range(rounds):
        for model, latencies in ((_model(1), whole), (_model(executors), cut)):
            load = loads.of(model, LARGE)
            latencies.append(run_open_loop(load, rate, seconds).counts.ok.p50_ms)
    return results.measured(
        "W8b",
        f"CTR MLP, HTTP binary, N={LARGE}: latency on one executor against the same request cut "
        f"over {executors} idle ones ({cores.words()})",
        [one / other if other else 0.0 for one, other in zip(whole, cut, strict=True)],
        yardstick=f"one executor, {median(whole):.2f} ms p50",
        figures={"p50 ms": median(cut), "bare loop ms": bare.p50_ms, "requests/s": rate},
        distributions=DISTRIBUTIONS,
    )


def _write_models(
    material: Material, shared_models: Path, counts: Sequence[int], threads: int
) -> None:
    """The same graph once for each number of executors, and once as a shared session."""
    queue = "queue: {default_timeout_ms: 20000}\n"
    graph = material.graph.read_bytes()
    for count in counts:
        serving = f"format: 1\nexecutors: {{per_worker: {count}}}\n{queue}"
        _write_model(material.repository / _model(count), graph, serving)
    shared = onnx.load_from_string(graph)
    options = {"session_options": {"intra_op_num_threads": threads}}
    shared.metadata_props.add(key="ort_config", value=json.dumps(options))
    serving = f"format: 1\nexecutors: {{per_worker: 1}}\nbatching: {{split_rows: off}}\n{queue}"
    _write_model(shared_models / SHARED, shared.SerializeToString(), serving)


def _write_model(folder: Path, graph: bytes, serving: str) -> None:
    version = folder / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(graph)
    (folder / "serving.yaml").write_text(serving)


def _model(executors: int) -> str:
    return f"ctr_{executors}"


def _bare(material: Material, rows: int, seconds: float) -> Loop:
    """The yardstick, in this process: nothing else runs meanwhile."""
    return measure(material.graph, {INPUT: make_rows(rows)}, seconds)


if __name__ == "__main__":
    main()
