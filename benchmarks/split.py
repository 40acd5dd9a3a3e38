"""W5 to W7: models whose lookups are cut, whose users are computed once, and that have fewer bits.

W5 and the scaled models of W6 are served: both forms by one server on core 0, load from core 1,
closed loop, by turns. The real models are run in this process on core 0, as an executor runs them.
"""

import argparse
import os
import re
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import rows as results
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.user_side.mac_counts import UserGain, user_gain
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_testing.servers import RunningServer, started_server
from anabranch_wire.errors import AnabranchError
from ctr_mlp import Body
from loads import Load, MissingTool, run_wrk
from split_engines import opened
from split_models import ENCODERS, LARGE_TABLES, USERS_ONCE, Recipe, SplitModel, make_inputs
from split_precision import precision_rows
from split_requests import write_bodies

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
ROWS: Final = 1000
CORPUS_ROWS: Final = 256
CONNECTIONS: Final = 4
BODIES: Final = 128
"""Different requests: their rows together are more than caches hold, as those of callers are."""
DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop")
USERS: Final = ("uid", "city", "hist_iid", "hist_cid", "age")
"""Inputs of the real models that say who asks."""
MIN_TABLE_BYTES: Final = OptimizeOptions().min_table_bytes
EARLY: Final = ("dssm_score", "gru4rec")
"""Real models in which the candidate meets the user last."""


@dataclass(frozen=True, slots=True)
class Options:
    """How long to measure.

    Attributes:
        quick: a smoke run.
        rounds: of everything.
        seconds: of one load.
        slice_seconds: of one comparison in this process.
    """

    quick: bool
    rounds: int
    seconds: float
    slice_seconds: float


@dataclass
class Seen:
    """Rounds of one model."""

    ratios: list[float] = field(default_factory=list)
    split: list[Load] = field(default_factory=list)
    whole: list[Load] = field(default_factory=list)
    failure: str | None = None


def main() -> None:
    """Measure, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--only", choices=("W5", "W6", "W7"), action="append")
    given = parser.parse_args()
    wanted: set[str] = set(given.only or ("W5", "W6", "W7"))
    options = (
        Options(True, 1, 1.0, 0.02) if given.quick else Options(False, results.ROUNDS, 3.0, 0.1)
    )
    measured: list[results.Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if "W5" in wanted:
            for recipe in LARGE_TABLES:  # one after the other: each has gigabytes of tables
                measured += _served_rows("W5", [recipe], folder / recipe.name, options)
            measured += [_slowest_row(folder, options, size) for size in (0, MIN_TABLE_BYTES)]
        if "W6" in wanted:
            measured += _served_rows("W6", [*ENCODERS, *USERS_ONCE], folder / "once", options)
            measured += _corpus_rows(folder, options)
        if "W7" in wanted:
            with _pinned():
                seconds = 10 * options.slice_seconds
                measured += precision_rows(folder / "precision", options.rounds, seconds)
    results.show(measured)
    if given.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(given.json, file)


def _served_rows(
    id: str, recipes: Sequence[Recipe], folder: Path, options: Options
) -> Iterator[results.Row]:
    """Rates of models served in both forms."""
    repository = folder / "models"
    models = {each.name: each.write(repository, options.quick) for each in recipes}
    (folder / "server").mkdir()
    seen = {each.name: Seen() for each in recipes}
    with started_server(
        repository, folder / "server", "--settle-s", "0", "--workers", "1",
        prefix=("taskset", "-c", str(SERVER_CORE)), timeout_s=900.0,
    ) as server:  # fmt: skip
        cut = {name: _cut_lookups(server, name) for name in models}
        rows = 50 if options.quick else ROWS
        bodies = {name: _bodies(folder, model, rows) for name, model in models.items()}
        for _ in range(options.rounds):
            for name in models:
                _round(server, bodies[name], seen[name], options.seconds)
    for recipe in recipes:
        if not cut[recipe.name]:
            seen[recipe.name].failure = "its lookups were not cut"
        if id == "W5":
            yield _large_row(recipe, seen[recipe.name], cut[recipe.name])
        else:
            yield from _once_rows(recipe, models[recipe.name], seen[recipe.name], bodies)


def _bodies(folder: Path, model: SplitModel, rows: int) -> tuple[Body, Body]:
    """Requests for the split model, users once, and those for the whole model, users tiled."""
    once = [make_inputs(model, rows, once=True, number=number) for number in range(BODIES)]
    tiled = [make_inputs(model, rows, number=number) for number in range(BODIES)]
    return (
        write_bodies(folder / f"{model.name}.once", model.name, once, model.outputs),
        write_bodies(folder / f"{model.name}.tiled", model.whole, tiled, model.outputs),
    )


def _round(server: RunningServer, bodies: tuple[Body, Body], seen: Seen, seconds: float) -> None:
    """The whole model, the split one, and the whole one again."""
    split, whole = bodies
    try:
        before = run_wrk(server.http, whole, CONNECTIONS, seconds / 2, LOAD_CORE)
        load = run_wrk(server.http, split, CONNECTIONS, seconds, LOAD_CORE)
        after = run_wrk(server.http, whole, CONNECTIONS, seconds / 2, LOAD_CORE)
    except (MissingTool, RuntimeError) as error:
        seen.failure = str(error)
        return
    if not before.requests or not after.requests:
        seen.failure = "the whole model answered nothing; is the machine quiet?"
        return
    seen.split.append(load)
    seen.whole += [before, after]
    seen.ratios.append(load.per_s / ((before.per_s + after.per_s) / 2))


def _large_row(recipe: Recipe, seen: Seen, cut: float) -> results.Row:
    what = f"{recipe.what}, 1M rows a table, N={ROWS}: requests/s of the split model"
    if seen.failure or not seen.ratios:
        return results.absent("W5", what, seen.failure or "not run", goal=">= 1.3")
    return results.measured(
        "W5",
        what,
        seen.ratios,
        goal=">= 1.3",
        yardstick=f"unsplit on the same server, {_rate(seen.whole):,.0f} requests/s",
        figures={**_figures(seen), "lookups": cut},
        distributions=DISTRIBUTIONS,
    )


def _once_rows(
    recipe: Recipe, model: SplitModel, seen: Seen, bodies: Mapping[str, tuple[Body, Body]]
) -> Iterator[results.Row]:
    """Rate with users once, as a ratio or as a share of what can be reached, and the bytes."""
    what = f"{recipe.what}, users once, N={ROWS}"
    is_early = recipe in ENCODERS
    goal = ">= 3" if is_early else ">= 0.8"
    said = f"{what}: {'requests/s' if is_early else 'gain, as a share of the bound by MACs'}"
    once, tiled = (body.path.stat().st_size for body in bodies[recipe.name])
    bytes_ratio = results.measured(
        "W6", f"{what}: bytes of a request", [once / tiled] * results.ROUNDS,
        goal="<= 0.3", yardstick=f"tiled users, {tiled:,} bytes",
    )  # fmt: skip
    if seen.failure or not seen.ratios:
        yield results.absent("W6", said, seen.failure or "not run", goal=goal)
        yield bytes_ratio
        return
    gain = _gain(model.graph, model.users, 65_536)
    assert gain is not None, recipe.name
    bound = gain.bound
    yield results.measured(
        "W6",
        said,
        seen.ratios if is_early else [ratio / bound for ratio in seen.ratios],
        goal=goal,
        yardstick=f"unsplit with tiled users, {_rate(seen.whole):,.0f} requests/s",
        figures={**_figures(seen), "x": median(seen.ratios), "x bound": bound},
        distributions=DISTRIBUTIONS,
    )
    yield bytes_ratio


def _slowest_row(folder: Path, options: Options, min_table_bytes: int) -> results.Row:
    """W5: of all real models the one that loses most by being cut."""
    seen: dict[str, list[float]] = {}
    refused = []
    for model in _corpus(options):
        try:
            ratios = _compared(model, (), CORPUS_ROWS, folder, options, min_table_bytes)
        except AnabranchError as error:
            refused.append(f"{model.name}: {error.message}")
            continue
        # What stays whole is served as before.
        seen[model.name] = ratios or [1.0] * options.rounds
    what = (
        f"real models, N={CORPUS_ROWS}, min_table_bytes {min_table_bytes}, in one process: "
        "the slowest, cut"
    )
    if refused:
        return results.absent("W5", what, "; ".join(refused), goal=">= 0.97")
    medians = {name: median(ratios) for name, ratios in seen.items()}
    slowest = min(medians, key=lambda name: medians[name])
    return results.measured(
        "W5",
        f"{what} ({slowest})",
        seen[slowest],
        goal=">= 0.97",
        yardstick="the same models whole",
        figures={
            "models": float(len(medians)),
            "below 0.97": float(sum(value < 0.97 for value in medians.values())),
            "median of all": median(medians.values()),
        },
        distributions=DISTRIBUTIONS,
    )


def _corpus_rows(folder: Path, options: Options) -> Iterator[results.Row]:
    """W6 for every real model with a user side, and the slowest of them."""
    slowest: tuple[str, list[float]] | None = None
    for model in _corpus(options):
        names = set(model.batches()[0])
        users = tuple(name for name in USERS if name in names)
        if not users or names <= set(users):
            continue
        what = f"{model.name}, users once, N={ROWS}, in one process"
        gain = _gain(model.folder / "model.onnx", users, 0)
        if gain is None or not gain.user:
            continue
        try:
            ratios = _compared(model, users, ROWS, folder, options)
        except AnabranchError as error:
            yield results.absent("W6", what, error.message)
            continue
        if not ratios:
            continue
        if slowest is None or median(ratios) < median(slowest[1]):
            slowest = model.name, ratios
        yield _corpus_row(model, what, ratios, gain)
    if slowest is not None:
        yield results.measured(
            "W6",
            f"real models, users once, N={ROWS}, in one process: the slowest ({slowest[0]})",
            slowest[1],
            goal=">= 0.97",
            yardstick="the same models whole, users tiled",
            distributions=DISTRIBUTIONS,
        )


def _corpus_row(
    model: CorpusModel, what: str, ratios: Sequence[float], gain: UserGain
) -> results.Row:
    is_early = any(word in model.name for word in EARLY)
    return results.measured(
        "W6",
        f"{what}: {'gain' if is_early else 'gain, as a share of the bound by MACs'}",
        ratios if is_early else [ratio / gain.bound for ratio in ratios],
        goal=">= 3" if is_early else ">= 0.8",
        yardstick="whole, users tiled",
        figures={"x": median(ratios), "x bound": gain.bound},
        distributions=DISTRIBUTIONS,
    )


def _compared(
    model: CorpusModel,
    users: tuple[str, ...],
    rows: int,
    folder: Path,
    options: Options,
    min_table_bytes: int = 0,
) -> list[float]:
    """Return how many times faster a real model is cut than whole, by round; [] if it stays whole.

    Raises:
        AnabranchError: it is refused.
    """
    named = f"user_inputs: [{', '.join(users)}]\n" if users else ""
    meaning = f"format: 1\noptimize: {{min_table_bytes: {min_table_bytes}}}\n{named}"
    with _pinned(), opened(model.folder / "model.onnx", meaning, _fresh(folder)) as pair:
        if pair.cut is None:
            return []
        axes = dict(
            zip(
                [spec.name for spec in pair.prepared.model.inputs],
                pair.prepared.model.rows.input_axes,
                strict=True,
            )
        )
        inputs = _repeated(model, axes, users, rows)
        ratios = []
        for _ in range(options.rounds):
            whole, cut = pair.compare(inputs, options.slice_seconds)
            ratios.append(whole / cut)
        return ratios


def _repeated(
    model: CorpusModel, axes: Mapping[str, int | None], users: Sequence[str], rows: int
) -> dict[str, NDArray[Any]]:
    """Return rows of the model's own batches, as often as it takes; one user for all of them."""
    one, two = model.batches()
    made = {}
    for name, array in one.items():
        if axes[name] is None:
            made[name] = array
            continue
        both = (
            np.concatenate([array, two[name]]) if array.shape[1:] == two[name].shape[1:] else array
        )
        many = np.resize(both, (rows, *array.shape[1:]))
        made[name] = np.broadcast_to(many[:1], many.shape) if name in users else many
    return made


def _gain(graph: Path, users: tuple[str, ...], min_table_bytes: int) -> UserGain | None:
    """What computing users once can save of this graph's multiplications."""
    by_row = optimize(graph, OptimizeOptions(min_table_bytes=min_table_bytes))
    once = optimize(graph, OptimizeOptions(min_table_bytes=min_table_bytes, user_inputs=users))
    return user_gain(by_row.dense, once.user, once.dense, ROWS)


def _corpus(options: Options) -> list[CorpusModel]:
    """All real models; for a smoke run those of the tree."""
    return tree_models() if options.quick else corpus_models() or tree_models()


_numbers = count()


def _fresh(folder: Path) -> Path:
    return folder / f"engine_{next(_numbers)}"


@contextmanager
def _pinned() -> Iterator[None]:
    """This process on the server's core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {SERVER_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _cut_lookups(server: RunningServer, model: str) -> float:
    """Lookups of a model that run beside its graph, as the server's metrics say."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    lines = re.findall(r"^anabranch_optimized_lookups{([^}]*)} (\S+)$", text, re.MULTILINE)
    return sum(
        float(value)
        for labels, value in lines
        if f'model="{model}"' in labels and 'where="cut"' in labels
    )


def _rate(loads: Sequence[Load]) -> float:
    return median([load.per_s for load in loads])


def _figures(seen: Seen) -> dict[str, float]:
    return {"requests/s": _rate(seen.split), "p99 ms": median([x.p99_ms for x in seen.split])}


if __name__ == "__main__":
    main()
