"""A model with 26 hashed tables beside its graph, through every door of a started server.

Keys are random 64-bit numbers, 0 and -1 among them. Half of the features are single keys, half are
ragged bags; requests ask for keys that are missing. The answers must be those of plain NumPy.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_testing.graphs import write_graph
from anabranch_testing.lengths import length
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client
from anabranch_wire.tensors import datatype_of

TABLES = 26
ROWS = length(100_000, 1_000_000, "ANABRANCH_HASHED_ROWS")
DIM = 8
BAGS = range(TABLES // 2, TABLES)
COMBINERS = ("sum", "mean", "sqrtn", "max")
TOLERANCE = 1e-5  # absolute: sums of eight float32 numbers below 1 each, in another order

WIDTH = TABLES * DIM
GRAPH = f"""
hashed (float[N, {WIDTH}] rows, float[N, 1] price) => (float[N] total, float[N, {WIDTH}] seen)
<int64[1] last = {{1}}>
{{
  scaled = Mul(rows, price)
  total = ReduceSum <keepdims: int = 0> (scaled, last)
  seen = Identity(rows)
}}
"""

pytestmark = pytest.mark.soak

Array = NDArray[Any]


class Table:
    """One table, and what a lookup in it must give."""

    def __init__(self, generator: np.random.Generator) -> None:
        keys = generator.integers(0, 2**64, ROWS, np.uint64, endpoint=False)
        keys[:2] = 0, 2**64 - 1
        self.keys = np.unique(keys).view(np.int64)
        generator.shuffle(self.keys)
        self.values = generator.uniform(-1, 1, (len(self.keys), DIM)).astype(np.float32)
        order = np.argsort(self.keys)
        self._sorted, self._order = self.keys[order], order

    def rows(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of `keys`; zeros for those that the table lacks."""
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        found = self._sorted[place] == keys
        return np.where(found[:, None], self.values[self._order[place]], np.float32(0))

    def pooled(self, bag: NDArray[np.int64], combiner: str) -> NDArray[np.float32]:
        """One bag as one row."""
        if not len(bag):
            return np.zeros(DIM, np.float32)
        rows = self.rows(bag).astype(np.float64)
        if combiner == "max":
            return np.asarray(rows.max(axis=0), np.float32)
        by = {"sum": 1.0, "mean": len(bag), "sqrtn": np.sqrt(len(bag))}[combiner]
        return np.asarray(rows.sum(axis=0) / by, np.float32)


def combiner_of(index: int) -> str:
    return COMBINERS[index % len(COMBINERS)] if index in BAGS else "sum"


def model_yaml() -> str:
    lines = ["format: 1", "features:"]
    for index in range(TABLES):
        ragged = ", ragged: {max_length: 64, keep: error}" if index in BAGS else ""
        lines.append(f"  - {{name: f{index}, side: candidate, type: int64{ragged}}}")
    lines.append("lookups:")
    for index in range(TABLES):
        columns = f"[{index * DIM}, {(index + 1) * DIM}]"
        lines.append(
            f"  - {{feature: f{index}, table: t{index}, combiner: {combiner_of(index)}, "
            f"output: {{input: rows, columns: {columns}}}}}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    generator = np.random.default_rng(26)
    return [Table(generator) for _ in range(TABLES)]


@pytest.fixture(scope="module")
def server(
    tables: list[Table], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    scratch = tmp_path_factory.mktemp("hashed")
    meaning = scratch / "model.yaml"
    meaning.write_text(model_yaml())
    repository = scratch / "repository"
    repository.mkdir()
    publish_version(
        repository / "hashed",
        write_graph(scratch / "graph", GRAPH),
        model_yaml=meaning,
        tables={f"t{index}": Rows(table.keys, table.values) for index, table in enumerate(tables)},
    )
    (scratch / "run").mkdir()
    options = ("--workers", "2")
    with started_server(repository, scratch / "run", *options, timeout_s=600.0) as running:
        yield running


def request_of(
    tables: list[Table], rows: int, seed: int, form: str
) -> tuple[dict[str, Array], Array]:
    """Inputs by name, and the rows that the graph must see."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, Array] = {"price": generator.uniform(0.5, 2, (rows, 1)).astype(np.float32)}
    seen = np.empty((rows, WIDTH), np.float32)
    for index, table in enumerate(tables):
        lengths = generator.integers(0, 9, rows) if index in BAGS else np.ones(rows, np.int64)
        keys = generator.choice(table.keys, int(lengths.sum()))
        keys[generator.random(len(keys)) < 0.1] += 1  # missing, but for one in 2^64
        inputs[f"f{index}"] = keys
        if index in BAGS and form == "lengths":
            inputs[f"f{index}.lengths"] = lengths.astype(np.int32)
        elif index in BAGS:
            inputs[f"f{index}.offsets"] = np.concatenate([[0], np.cumsum(lengths)])
        ends = np.cumsum(lengths)
        for row in range(rows):
            bag = keys[ends[row] - lengths[row] : ends[row]]
            seen[row, index * DIM : (index + 1) * DIM] = table.pooled(bag, combiner_of(index))
    return inputs, seen


def answers(server: RunningServer, door: str, inputs: dict[str, Array]) -> tuple[Array, Array]:
    module: Any = tritonclient.grpc if door == "grpc" else tritonclient.http
    options = {} if door == "grpc" else {"binary_data": door == "binary"}
    client = module.InferenceServerClient(server.grpc if door == "grpc" else server.http)
    tensors = []
    for name, array in inputs.items():
        tensor = module.InferInput(name, list(array.shape), datatype_of(array.dtype))
        tensor.set_data_from_numpy(array, **options)
        tensors.append(tensor)
    try:
        answer = client.infer("hashed", tensors)
        return answer.as_numpy("total"), answer.as_numpy("seen")
    finally:
        client.close() if door == "grpc" else retire_http_client(client)


@pytest.mark.parametrize("form", ["lengths", "offsets"])
@pytest.mark.parametrize("rows", [1, 7, 200])
@pytest.mark.parametrize("door", ["json", "binary", "grpc"])
def test_answers_are_those_of_plain_arithmetic(
    server: RunningServer, tables: list[Table], door: str, rows: int, form: str
) -> None:
    inputs, seen = request_of(tables, rows, seed=rows, form=form)

    total, got = answers(server, door, inputs)

    np.testing.assert_allclose(got, seen, rtol=0, atol=TOLERANCE)
    expected = (seen.astype(np.float64) * inputs["price"]).sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=0, atol=WIDTH * TOLERANCE)


@pytest.mark.parametrize("door", ["json", "binary", "grpc"])
def test_the_keys_that_mark_empty_and_dead_slots_are_keys_like_others(
    server: RunningServer, tables: list[Table], door: str
) -> None:
    inputs, _ = request_of(tables, 2, seed=1, form="lengths")
    inputs["f0"] = np.array([0, -1])

    _, got = answers(server, door, inputs)

    np.testing.assert_array_equal(got[:, :DIM], tables[0].rows(np.array([0, -1])))


@pytest.mark.parametrize("door", ["json", "binary", "grpc"])
def test_lengths_that_do_not_fit_their_ids_are_refused_by_name(
    server: RunningServer, tables: list[Table], door: str
) -> None:
    inputs, _ = request_of(tables, 2, seed=1, form="lengths")
    inputs[f"f{BAGS[0]}.lengths"] = np.array([1, 10**6], np.int32)

    with pytest.raises(InferenceServerException, match=f"f{BAGS[0]}"):
        answers(server, door, inputs)


def test_the_graph_input_that_lookups_fill_is_no_input_of_the_model(server: RunningServer) -> None:
    client = tritonclient.http.InferenceServerClient(server.http)

    names = {tensor["name"] for tensor in client.get_model_metadata("hashed")["inputs"]}

    assert "rows" not in names
    assert {"price", "f0", f"f{BAGS[0]}"} <= names
    retire_http_client(client)


def test_workers_share_the_rows(server: RunningServer, tables: list[Table]) -> None:
    base_bytes = sum(table.values.nbytes for table in tables)
    if base_bytes < 64 << 20:
        pytest.skip("set ANABRANCH_HASHED_ROWS to at least 100000: less is hidden by the processes")

    shared = [_shared_bytes(pid) for pid in server.workers]

    for pss in shared:
        assert pss < 0.75 * base_bytes  # two workers have it in memory once


def _shared_bytes(pid: int) -> int:
    """Memory of mappings of segments, this process's part of it."""
    total = 0
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split()
        if "-" in head[0] and not head[0].endswith(":"):
            inside = len(head) > 5 and head[-1].endswith(".seg")
        elif inside and head[0] == "Pss:":
            total += int(head[1]) * 1024
    return total
