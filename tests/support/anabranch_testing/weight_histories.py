"""Weights of real models over two updates: as deltas bring them, and as whole models.

The corpus has updates of some models; those of the others are drawn, the same in every run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models

__all__ = ["UPDATES", "WeightHistory", "WeightUpdate", "weight_histories"]

UPDATES: Final = 2

Batch = dict[str, NDArray[Any]]
_DENSE: Final = ("weight", "bias", "MatMul", "running", "alpha")


@dataclass(frozen=True)
class WeightUpdate:
    """What one delta brings.

    Attributes:
        rows: table -> (row numbers (n,) int64, values (n, dim) float32).
        weights: initializer -> all of it.
    """

    rows: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float32]]]
    weights: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class WeightHistory:
    """A model and its updates."""

    model: CorpusModel

    @property
    def name(self) -> str:
        """Of the model."""
        return self.model.name

    @property
    def is_recorded(self) -> bool:
        """Whether the corpus has its updates, with what they make of the answers."""
        return self._folder.is_dir()

    @cached_property
    def updates(self) -> tuple[WeightUpdate, ...]:
        """One after the other."""
        if not self.is_recorded:
            return _drawn(self.model)
        return tuple(_read(self._folder / f"d{number}.npz") for number in (2, 3))

    def write(self, done: int, target: Path) -> Path:
        """Write the whole model as the first `done` updates leave it; returns `target`."""
        model = onnx.load(self.model.folder / "model.onnx")
        weights: Batch = {}
        for update in self.updates[:done]:
            weights.update(update.weights)
            for name, (rows, values) in update.rows.items():
                weights.setdefault(name, _initial(model, name).copy())[rows] = values
        for initializer in model.graph.initializer:
            if initializer.name in weights:
                new = onnx.numpy_helper.from_array(weights.pop(initializer.name), initializer.name)
                initializer.CopyFrom(new)
        assert not weights, f"{self.name} has no {sorted(weights)}"
        onnx.save(model, target)
        return target

    def expected(self, done: int, whole: Path) -> list[Batch]:
        """Return the answers to both batches: those of the corpus where it has them.

        Args:
            done: updates that were made.
            whole: what `write` wrote for them.
        """
        if self.is_recorded:
            with np.load(self._folder / "expected.npz", allow_pickle=False) as arrays:
                prefixes = [f"v{done + 1}.b{number}." for number in (0, 1)]
                return [
                    {key[len(one) :]: arrays[key] for key in arrays.files if key.startswith(one)}
                    for one in prefixes
                ]
        runner = OrtModelRunner()
        return [dict(runner.run(whole, batch)) for batch in self.model.batches()]

    @property
    def _folder(self) -> Path:
        return self.model.folder / "deltas"


def weight_histories(drawn: tuple[str, ...] | None) -> list[WeightHistory]:
    """Return the histories of the corpus, and those drawn for models of the tree.

    Args:
        drawn: names of models of the tree; None are all that the corpus has no updates of.
    """
    recorded = [one for one in map(WeightHistory, corpus_models()) if one.is_recorded]
    names = {one.name for one in recorded}
    return recorded + [
        WeightHistory(model)
        for model in tree_models()
        if model.name not in names and (drawn is None or model.name in drawn)
    ]


def _read(path: Path) -> WeightUpdate:
    with np.load(path, allow_pickle=False) as arrays:
        tables = [key.removeprefix("rows.") for key in arrays.files if key.startswith("rows.")]
        return WeightUpdate(
            {name: (arrays[f"rows.{name}"], arrays[f"values.{name}"]) for name in tables},
            {
                key.removeprefix("full."): arrays[key]
                for key in arrays.files
                if key.startswith("full.")
            },
        )


def _drawn(model: CorpusModel) -> tuple[WeightUpdate, ...]:
    """Draw a hundredth of the rows of every table, and all dense weights a little moved."""
    graph = onnx.load(model.folder / "model.onnx").graph
    tables = json.loads((model.folder / "meta.json").read_bytes())["tables"]
    dice = np.random.default_rng(len(model.name))
    updates = []
    for _ in range(UPDATES):
        rows, weights = {}, {}
        for initializer in graph.initializer:
            values = onnx.numpy_helper.to_array(initializer)
            if values.dtype != np.float32 or values.size < 2:
                continue
            if initializer.name in tables and values.ndim == 2:
                chosen = np.sort(dice.permutation(len(values))[: max(1, len(values) // 100)])
                drawn = dice.normal(scale=0.3, size=(len(chosen), values.shape[1]))
                rows[initializer.name] = (chosen.astype(np.int64), drawn.astype(np.float32))
            elif any(part in initializer.name for part in _DENSE):
                moved = values * dice.uniform(0.9, 1.1, values.shape)
                weights[initializer.name] = moved.astype(np.float32)
        updates.append(WeightUpdate(rows, weights))
    return tuple(updates)


def _initial(model: onnx.ModelProto, name: str) -> NDArray[Any]:
    found = next(one for one in model.graph.initializer if one.name == name)
    return onnx.numpy_helper.to_array(found)
