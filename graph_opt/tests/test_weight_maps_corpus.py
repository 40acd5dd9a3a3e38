"""New rows and new weights of real models, brought by their old names, give the new answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import Optimized, TableSource
from anabranch_graph_opt.optimizer import optimize
from anabranch_testing.corpus import CorpusModel, corpus_models, is_required, tree_models
from anabranch_testing.optimized_models import OptimizedModel
from anabranch_wire.weight_targets import ToTable

MODELS: Final = [
    model
    for model in corpus_models() or tree_models()
    if (model.folder / "deltas" / "d2.npz").is_file()
]
STEPS: Final = (("d2.npz", "v2"), ("d3.npz", "v3"))

MAX_DIFF: Final = 1e-5

Arrays = dict[str, NDArray[Any]]


def test_models_with_deltas_are_there() -> None:
    if not MODELS and not is_required("corpus"):
        pytest.skip("no corpus beside the checkout")
    assert len(MODELS) >= 1


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_deltas_give_the_answers_of_the_new_versions(model: CorpusModel) -> None:
    updated = Updated(optimize(model.folder / "model.onnx", OptimizeOptions(min_table_bytes=0)))
    expected = loaded(model.folder / "deltas" / "expected.npz")

    for file, version in STEPS:
        delta = loaded(model.folder / "deltas" / file)
        for key, array in delta.items():
            kind, name = key.split(".", 1)
            if kind == "full":
                updated.replace(name, array)
            elif kind == "rows":
                updated.replace_rows(name, array, delta[f"values.{name}"])
        parts = updated.model()
        for number, batch in enumerate(model.batches()):
            outputs = parts.run(batch)
            for name, array in outputs.items():
                answer = expected[f"{version}.b{number}.{name}"]
                assert np.abs(array - answer).max(initial=0) <= MAX_DIFF, (version, name)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_new_versions_answer_otherwise_than_the_first(model: CorpusModel) -> None:
    expected = loaded(model.folder / "deltas" / "expected.npz")
    first = [name for name in expected if name.startswith("v1.")]

    for _, version in STEPS:
        others = [expected[version + name.removeprefix("v1")] for name in first]
        pairs = zip(first, others, strict=True)
        assert any(np.abs(expected[name] - other).max() > MAX_DIFF for name, other in pairs)


class Updated:
    """An optimised model whose weights are replaced by the names that the original gave them."""

    def __init__(self, optimized: Optimized) -> None:
        self._optimized = optimized
        self._tables = [table.tensor.numpy().copy() for table in optimized.tables]

    def replace(self, name: str, array: NDArray[Any]) -> None:
        for target in self._optimized.weights[name]:
            if isinstance(target, ToTable):
                assert self._tables[target.index].shape == array.shape
                self._tables[target.index][...] = array
                continue
            assert target.transform in ("none", "transpose")
            turned = array.T if target.transform == "transpose" else array
            assert self._set(target.name, turned), f"no graph holds {target.name}"

    def replace_rows(self, name: str, rows: NDArray[Any], values: NDArray[Any]) -> None:
        whole = self._whole(name)
        whole[rows] = values
        self.replace(name, whole)

    def model(self) -> OptimizedModel:
        """The model as it is now."""
        tables = tuple(
            TableSource(table.name, ir.tensor(array, name=table.name))
            for table, array in zip(self._optimized.tables, self._tables, strict=True)
        )
        return OptimizedModel(replace(self._optimized, tables=tables))

    def _whole(self, name: str) -> NDArray[Any]:
        target = self._optimized.weights[name][0]
        if isinstance(target, ToTable):
            return self._tables[target.index].copy()
        for graph in self._graphs():
            value = graph.initializers.get(target.name)
            if value is not None and value.const_value is not None:
                return value.const_value.numpy().copy()
        raise AssertionError(f"no graph holds {target.name}")

    def _set(self, name: str, array: NDArray[Any]) -> bool:
        found = False
        for graph in self._graphs():
            value = graph.initializers.get(name)
            if value is not None and value.const_value is not None:
                assert tuple(value.const_value.shape.numpy()) == array.shape
                value.const_value = ir.tensor(np.ascontiguousarray(array), name=name)
                found = True
        return found

    def _graphs(self) -> list[ir.Graph]:
        optimized = self._optimized
        models = (optimized.dense, optimized.prelude, optimized.user)
        return [model.graph for model in models if model is not None]


def loaded(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
