"""Models of the split benchmarks, written with NumPy: tables as large as in production.

Each version is written twice: as `NAME`, whose lookups are cut, and as `NAME_whole`, a copy that is
served as it is.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["ENCODERS", "LARGE_TABLES", "USERS_ONCE", "Recipe", "SplitModel", "make_inputs"]

Attribute = int | Sequence[int]

_SEED: Final = 5
_DIM: Final = 16
_CHUNK: Final = 1 << 16
_FIELDS: Final = 26
_SERVING: Final = """\
format: 1
batching: {merge: false}
queue: {default_timeout_ms: 20000}
"""


@dataclass(frozen=True, slots=True)
class _Input:
    """An input of a graph.

    Attributes:
        columns: of a row; None for one number a row.
        below: ids are smaller; 0 for floats.
    """

    columns: int | None
    below: int


@dataclass(frozen=True, slots=True)
class SplitModel:
    """A model in a repository, in both forms.

    Attributes:
        name: it is served under; whole under `whole`.
        graph: its ONNX file.
        inputs: by name.
        users: inputs that hold a user.
        outputs: names.
    """

    name: str
    graph: Path
    inputs: Mapping[str, _Input]
    users: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def whole(self) -> str:
        """Name of the form whose lookups stay."""
        return f"{self.name}_whole"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is made.

    Attributes:
        name: of the model.
        what: in words.
        draw: makes its graph, from rows of a table, and gives its output.
        users: inputs that hold a user.
        rows: of a table.
    """

    name: str
    what: str
    draw: Callable[["_Draft", int], str]
    users: tuple[str, ...] = ()
    rows: int = 1_000_000

    def write(self, repository: Path, quick: bool) -> SplitModel:
        """Write both forms.

        Args:
            repository: gets two models.
            quick: with two thousand rows a table, which are enough to be cut.
        """
        version = repository / self.name / "1"
        version.mkdir(parents=True)
        with _drafting(version / "tables.bin") as draft:
            output = draft.op("Sigmoid", self.draw(draft, 2000 if quick else self.rows))
            draft.nodes[-1].output[0] = "score"
            assert output
        graph = version / "model.onnx"
        onnx.save(draft.model(self.name), graph)
        model = SplitModel(self.name, graph, draft.inputs, self.users, ("score",))
        whole = repository / model.whole / "1"
        whole.mkdir(parents=True)
        for file in list(version.iterdir()):
            shutil.copyfile(file, whole / file.name)  # external data with two links is refused
        users = f"user_inputs: [{', '.join(self.users)}]\n" if self.users else ""
        (repository / model.name / "model.yaml").write_text(f"format: 1\n{users}")
        (repository / model.whole / "model.yaml").write_text(
            f"format: 1\n{users}optimize: {{split: off}}\n"
        )
        for name in (model.name, model.whole):
            (repository / name / "serving.yaml").write_text(_SERVING)
        return model


def make_inputs(
    model: SplitModel, rows: int, *, once: bool = False, number: int = 0
) -> dict[str, NDArray[Any]]:
    """Return a request of one user, the same at every call.

    Args:
        model: that it is for.
        rows: candidates.
        once: whether inputs of the user have one row, not one for each candidate.
        number: which request.
    """
    rng = np.random.default_rng((_SEED, number))
    made = {}
    for name, kind in model.inputs.items():
        count = 1 if name in model.users else rows
        shape = (count,) if kind.columns is None else (count, kind.columns)
        array: NDArray[Any] = (
            rng.integers(0, kind.below, shape)
            if kind.below
            else rng.random(shape, dtype=np.float32)
        )
        made[name] = array if once or count == rows else np.repeat(array, rows, axis=0)
    return made


@dataclass
class _Draft:
    """A graph under construction."""

    tables: BinaryIO
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: dict[str, _Input] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(_SEED)

    def ids(self, name: str, columns: int | None, below: int) -> str:
        """An input of ids."""
        self.inputs[name] = _Input(columns, below)
        return name

    def floats(self, name: str, columns: int) -> str:
        """An input of numbers."""
        self.inputs[name] = _Input(columns, 0)
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Attribute) -> str:
        """A node; the name of its last output."""
        names = [f"{kind.lower()}{len(self.nodes)}_{index}" for index in range(outputs)]
        node = helper.make_node(kind, inputs, names)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        self.nodes.append(node)
        return names[-1]

    def constant(self, numbers: ArrayLike) -> str:
        """A small constant."""
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(numbers), name))
        return name

    def weight(self, *shape: int) -> str:
        """A weight whose products neither fade nor grow."""
        scale = shape[0] ** -0.5
        return self.constant(self._rng.normal(scale=scale, size=shape).astype(np.float32))

    def table(self, rows: int, dim: int) -> str:
        """A table of embeddings, in the file of tables."""
        name = f"table{len(self.weights)}"
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[rows, dim])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": "tables.bin", "offset": self.tables.tell(), "length": rows * dim * 4}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        for begin in range(0, rows, _CHUNK):
            shape = (min(_CHUNK, rows - begin), dim)
            self.tables.write((self._rng.random(shape, dtype=np.float32) - 0.5).tobytes())
        self.weights.append(tensor)
        return name

    def embedded(self, ids: str, fields: int, rows: int, dim: int = _DIM) -> str:
        """[N, fields, dim] of ids [N, fields], all fields in one table, as torchfm has it."""
        offsets = self.constant(np.arange(fields, dtype=np.int64) * rows)
        return self.op("Gather", self.table(fields * rows, dim), self.op("Add", ids, offsets))

    def flat(self, value: str, columns: int) -> str:
        """[N, columns] of a value with as many numbers a row."""
        return self.op("Reshape", value, self.constant(np.array([-1, columns])))

    def layers(self, value: str, widths: Sequence[int], last: str | None = "Relu") -> str:
        """Layers with Relu between them; `last` follows the last one."""
        pairs = list(pairwise(widths))
        for index, (before, after) in enumerate(pairs):
            bias = self.constant(np.zeros(after, np.float32))
            value = self.op("Gemm", value, self.weight(before, after), bias)
            follows = "Relu" if index < len(pairs) - 1 else last
            value = self.op(follows, value) if follows else value
        return value

    def model(self, name: str) -> onnx.ModelProto:
        """What was drawn."""
        inputs = [
            helper.make_tensor_value_info(
                each,
                TensorProto.INT64 if kind.below else TensorProto.FLOAT,
                ["N"] if kind.columns is None else ["N", kind.columns],
            )
            for each, kind in self.inputs.items()
        ]
        output = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N", 1])
        graph = helper.make_graph(self.nodes, name, inputs, [output], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@contextmanager
def _drafting(tables: Path) -> Iterator[_Draft]:
    with tables.open("wb") as file:
        yield _Draft(file)


def _dlrm(draft: _Draft, rows: int) -> str:
    """13 numbers and 26 tables, as for Criteo's data: 512-256-64-16, products of pairs, 512-256."""
    sparse = draft.ids("sparse", _FIELDS, rows)
    bottom = draft.layers(draft.floats("dense", 13), (13, 512, 256, 64, _DIM))
    one = draft.constant(np.array([1]))
    parts = [draft.op("Unsqueeze", bottom, one)]
    for index in range(_FIELDS):
        ids = draft.op("Gather", sparse, draft.constant(np.array([index])), axis=1)
        parts.append(draft.op("Gather", draft.table(rows, _DIM), ids))
    stacked = draft.op("Concat", *parts, axis=1)
    pairs = draft.op("MatMul", stacked, draft.op("Transpose", stacked, perm=[0, 2, 1]))
    size = _FIELDS + 1
    below, left = np.tril_indices(size, -1)
    chosen = draft.constant((below * size + left).astype(np.int64))
    products = draft.op("Gather", draft.flat(pairs, size * size), chosen, axis=1)
    top = draft.op("Concat", bottom, products, axis=1)
    return draft.layers(top, (_DIM + len(below), 512, 256, 1), None)


def _deepfm(draft: _Draft, rows: int) -> str:
    """DeepFM as in torchfm: 26 fields in one table, their weights in another, 16 and 16."""
    x = draft.ids("x", _FIELDS, rows)
    embedded = draft.embedded(x, _FIELDS, rows)
    linear = draft.embedded(x, _FIELDS, rows, 1)
    one = draft.constant(np.array([1]))
    first = draft.op("ReduceSum", linear, one, keepdims=0)
    total = draft.op("ReduceSum", embedded, one, keepdims=0)
    squares = draft.op("ReduceSum", draft.op("Mul", embedded, embedded), one, keepdims=0)
    twice = draft.op("Sub", draft.op("Mul", total, total), squares)
    second = draft.op("ReduceSum", twice, one, keepdims=1)
    half = draft.op("Mul", second, draft.constant(np.float32(0.5)))
    deep = draft.layers(draft.flat(embedded, _FIELDS * _DIM), (_FIELDS * _DIM, 16, 16, 1), None)
    return draft.op("Add", draft.op("Add", first, half), deep)


def _side(draft: _Draft, name: str, fields: int, rows: int) -> str:
    ids = draft.ids(name, fields, rows)
    return draft.flat(draft.embedded(ids, fields, rows), fields * _DIM)


def _dot(draft: _Draft, left: str, right: str) -> str:
    one = draft.constant(np.array([1]))
    return draft.op("ReduceSum", draft.op("Mul", left, right), one, keepdims=1)


def _towers(users: int, items: int) -> Callable[[_Draft, int], str]:
    def draw(draft: _Draft, rows: int) -> str:
        sides = (("user", users), ("item", items))
        return _dot(
            draft,
            *(
                draft.layers(_side(draft, name, fields, rows), (fields * _DIM, 512, 256, 64))
                for name, fields in sides
            ),
        )

    return draw


def _wide(users: int, items: int, *widths: int) -> Callable[[_Draft, int], str]:
    def draw(draft: _Draft, rows: int) -> str:
        parts = [_side(draft, "user", users, rows), _side(draft, "item", items, rows)]
        joined = draft.op("Concat", *parts, axis=1)
        return draft.layers(joined, ((users + items) * _DIM, *widths, 1), None)

    return draw


def _history(draft: _Draft, length: int, rows: int, dim: int) -> tuple[str, str]:
    """Rows of a history, and of the candidate, out of one table."""
    table = draft.table(rows, dim)
    history = draft.op("Gather", table, draft.ids("history", length, rows))
    return history, draft.op("Gather", table, draft.ids("item", None, rows))


def _gru(length: int, dim: int) -> Callable[[_Draft, int], str]:
    def draw(draft: _Draft, rows: int) -> str:
        history, item = _history(draft, length, rows, dim)
        steps = draft.op("Transpose", history, perm=[1, 0, 2])
        gates = [draft.weight(1, 3 * dim, dim), draft.weight(1, 3 * dim, dim)]
        last = draft.op("GRU", steps, *gates, outputs=2, hidden_size=dim)
        state = draft.op("Squeeze", last, draft.constant(np.array([0])))
        return _dot(draft, state, item)

    return draw


def _din(length: int, dim: int, *widths: int) -> Callable[[_Draft, int], str]:
    def draw(draft: _Draft, rows: int) -> str:
        history, item = _history(draft, length, rows, dim)
        one = draft.constant(np.array([1]))
        shape = draft.constant(np.array([1, length, 1]))
        query = draft.op("Expand", draft.op("Unsqueeze", item, one), shape)
        parts = [
            query, history, draft.op("Sub", query, history), draft.op("Mul", query, history)
        ]  # fmt: skip
        joined = draft.flat(draft.op("Concat", *parts, axis=2), 4 * dim)
        scores = draft.layers(joined, (4 * dim, *widths, 1), None)
        weights = draft.op("Reshape", scores, draft.constant(np.array([-1, 1, length])))
        pooled = draft.op("Squeeze", draft.op("MatMul", weights, history), one)
        top = draft.op("Concat", pooled, item, axis=1)
        return draft.layers(top, (2 * dim, 80, 40, 1), None)

    return draw


LARGE_TABLES: Final = (
    Recipe("dlrm", "DLRM, 26 tables, D=16, 512-256-64-16 and 512-256-1", _dlrm),
    Recipe("deepfm", "DeepFM as in torchfm, 26 fields in one table, D=16, 16-16-1", _deepfm),
)
_USER: Final = ("user",)
_HISTORY: Final = ("history",)
ENCODERS: Final = (
    Recipe("towers", "towers of 1600 and 96 columns, 512-256-64", _towers(100, 6), _USER, 10_000),
    Recipe("gru", "GRU over 20 items, D=32, dot product", _gru(20, 32), _HISTORY, 100_000),
)
USERS_ONCE: Final = (
    Recipe("even", "towers of 400 and 96 columns, 512-256-64", _towers(25, 6), _USER, 10_000),
    Recipe("mlp", "MLP 416-1024-512-1, 77% user", _wide(20, 6, 1024, 512), _USER, 10_000),
    Recipe("wide", "MLP 2048-512-256-1, 75% user", _wide(96, 32, 512, 256), _USER, 10_000),
    Recipe("din32", "DIN, L=50, D=32, 80-40", _din(50, 32, 80, 40), _HISTORY, 100_000),
    Recipe("din64", "DIN, L=50, D=64, 64-16", _din(50, 64, 64, 16), _HISTORY, 100_000),
)
