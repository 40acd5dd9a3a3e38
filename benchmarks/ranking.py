"""F1, F2: from the bytes of a ranking request to the inputs of the graph, on one core.

One user and 1,000 candidates with 30 features, strings among them, go through what both doors do
with a request before it is queued: the checks of its size, the outside, all of its columns, hashes,
and the rules of the graph's inputs. Beside them, in turn: a general parser of the same bytes, which
only makes objects of them, and the door of the Open Inference Protocol with a row of every input
for each candidate, as callers without features have to send it (their hashing not counted).

Time is the CPU time of the measuring thread, pinned to the first usable core. About ten seconds.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

import rows as results
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.requests import RankRequest
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings
from anabranch_server.limits import Limits
from anabranch_server.oip import CallOptions, InferDecoder
from anabranch_server.ranking.json_requests import read_rank_json
from anabranch_server.ranking.messages import parse_outside, request_of
from anabranch_server.ranking.sizes import check_sizes
from anabranch_server.rpc.envelope import check_envelope
from anabranch_wire import ranking as messages
from anabranch_wire.snapshots import Snapshot
from lookup_rounds import interleaved
from ranking_bodies import as_json, as_message, as_tensors, make_features
from ranking_model import dense_model, ranking_plan, users_inputs
from session_sharing import Uncounted

_DISTRIBUTIONS: Final = ("anabranch", "numpy", "msgspec", "protobuf")
_LIMITS: Final = Limits()
_COLUMNS: Final = ColumnLimits(_LIMITS.max_rows, _LIMITS.max_elements, _LIMITS.max_string_bytes)
_REQUESTS: Final = 8
"""Different ones, sent in turn."""

Inputs = tuple[NDArray[np.generic], ...]


@dataclass(frozen=True, slots=True)
class _Bodies:
    """One request in all forms."""

    message: bytes
    json: bytes
    tensors_json: bytes
    tensors_binary: bytes
    head_bytes: int | None


def main() -> None:
    """Measure, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and short; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    machine = results.machine()  # before it is this core only
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = 100 if options.quick else 1000
    with _served() as served:
        measured = _measured(_Doors(served), rows, is_quick=options.quick)
    measured = [replace(row, machine=machine) for row in measured]
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


@contextmanager
def _served() -> Iterator[ServedVersion]:
    """The model, ready to be asked."""
    with tempfile.TemporaryDirectory() as folder:
        model = dense_model(Path(folder) / "model.onnx")
        group = SessionGroup("ranking", GroupSettings(), OrtCpuBackend(), Uncounted())
        try:
            yield group.load(
                Snapshot("ranking", 1),
                model,
                (),
                user_inputs=users_inputs(),
                ranking=RankingRules(ranking_plan(), model.outputs),
            )
        finally:
            group.close()


class _Doors:
    """What the doors do with a body, up to the queue."""

    def __init__(self, served: ServedVersion) -> None:
        assert served.ranking is not None
        self._served = served
        self._ranking = served.ranking
        self._infer = InferDecoder(_LIMITS)

    def rank_message(self, body: bytes) -> Inputs:
        check_envelope(body, _LIMITS, "features and outputs")
        return self._ordered(self.prepared(request_of(parse_outside(body))))

    def rank_json(self, body: bytes) -> Inputs:
        return self._ordered(self.prepared(read_rank_json(body, _LIMITS)))

    def infer(self, body: bytes, head_bytes: int | None) -> Inputs:
        options = CallOptions(time.monotonic())
        return self._infer.decode(body, head_bytes, self._served, options)[0].inputs

    def prepared(self, request: RankRequest) -> PreparedRanking:
        check_sizes(request, _LIMITS)
        return self._ranking.prepare(request, _COLUMNS)

    def _ordered(self, prepared: PreparedRanking) -> Inputs:
        return self._served.rules.order(prepared.arrays)[0]


def _bodies(doors: _Doors, number: int, rows: int) -> _Bodies:
    """One request in all forms, which were seen to be the same request."""
    features = make_features(number, rows)
    message, text = as_message(features), as_json(features)
    arrays = doors.prepared(request_of(parse_outside(message))).arrays
    tensors_json, _ = as_tensors(arrays, rows, binary=False)
    tensors_binary, head_bytes = as_tensors(arrays, rows, binary=True)
    expected = doors.infer(tensors_binary, head_bytes)
    for inputs in (
        doors.rank_message(message),
        doors.rank_json(text),
        doors.infer(tensors_json, None),
    ):
        for found, wanted in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(np.broadcast_to(found, wanted.shape), wanted)
    return _Bodies(message, text, tensors_json, tensors_binary, head_bytes)


def _measured(doors: _Doors, rows: int, *, is_quick: bool) -> list[results.Row]:
    made = [_bodies(doors, number, rows) for number in range(_REQUESTS)]

    def in_turn(work: Callable[[_Bodies], object]) -> Callable[[], object]:
        turns = cycle(made)
        return lambda: work(next(turns))

    times = interleaved(
        {
            "message": in_turn(lambda one: doors.rank_message(one.message)),
            "protobuf": in_turn(lambda one: messages.RankRequest.FromString(one.message)),
            "json": in_turn(lambda one: doors.rank_json(one.json)),
            "msgspec": in_turn(lambda one: msgspec.json.decode(one.json)),
            "tensors, binary": in_turn(lambda one: doors.infer(one.tensors_binary, one.head_bytes)),
            "tensors, json": in_turn(lambda one: doors.infer(one.tensors_json, None)),
        },
        2 if is_quick else results.ROUNDS,
        least_s=0.02 if is_quick else 0.2,
    )
    ms = {name: [1e3 * one for one in seconds] for name, seconds in times.items()}
    middle = {name: float(np.median(values)) for name, values in ms.items()}
    size = {
        "message": _mean([len(one.message) for one in made]),
        "json": _mean([len(one.json) for one in made]),
        "tensors, binary": _mean([len(one.tensors_binary) for one in made]),
        "tensors, json": _mean([len(one.tensors_json) for one in made]),
    }
    what = f"1 user x {rows:,} candidates, 30 features"
    return [
        results.measured(
            "F1",
            f"gRPC Rank, bytes to the graph's inputs, {what}",
            ms["message"],
            yardstick=f"google.protobuf makes objects of the message, {middle['protobuf']:.3g} ms",
            goal="<= 0.5",
            unit="ms",
            figures={"request bytes": size["message"]},
            distributions=_DISTRIBUTIONS,
        ),
        results.measured(
            "F2",
            f":rank as JSON, bytes to the graph's inputs, {what}",
            ms["json"],
            yardstick=f"msgspec makes objects of the JSON, {middle['msgspec']:.3g} ms",
            goal="<= 2.5",
            unit="ms",
            figures={"request bytes": size["json"]},
            distributions=_DISTRIBUTIONS,
        ),
        *(
            results.measured(
                "F2",
                f"request bytes of {sent} against per-row tensors ({form}), {what}",
                [size[name] / size[other]] * len(ms[name]),
                yardstick=f"per-row tensors, {size[other]:,.0f} bytes, {middle[other]:.3g} ms",
                goal="<= 0.3",
                figures={"request bytes": size[name], "ms": middle[name]},
                distributions=_DISTRIBUTIONS,
            )
            for name, sent, other, form in (
                ("json", ":rank as JSON", "tensors, json", "OIP as JSON"),
                ("message", "gRPC Rank", "tensors, binary", "OIP, binary"),
            )
        ),
    ]


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
