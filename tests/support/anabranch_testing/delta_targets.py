"""Versions as deltas find them: prepared, with all that the next one is applied to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_trials import open_cut_trial
from anabranch_model_store.deltas.graph_updates import UpdatedGraphs, updated_graphs
from anabranch_model_store.deltas.targets import DeltaTarget, GraphFiles, RowChanges, WeightChanges
from anabranch_model_store.deltas.weight_files import WeightFiles
from anabranch_model_store.deltas.weight_places import WeightPlaces
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel
from anabranch_wire.names import ModelName

__all__ = ["Arrays", "DeltaShop", "answers", "patched", "row_changes", "target_of"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class DeltaShop:
    """A repository of one model, and caches."""

    root: Path

    @property
    def model_folder(self) -> Path:
        """Of the model."""
        return self.root / "models" / "m"

    def folder(self, version: int = 1) -> Path:
        """Of a version; is made."""
        folder = self.model_folder / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def settings(self) -> StoreSettings:
        """How versions are prepared."""
        cache = self.root / "cache"
        return StoreSettings(
            SegmentCache(cache / "segments", 1 << 30),
            BuiltGraphs(cache / "cut", 1 << 30),
            items=ItemCache(cache / "items", 1 << 30),
        )

    @property
    def built(self) -> BuiltGraphs:
        """Where optimised graphs go."""
        return BuiltGraphs(self.root / "cache" / "graphs", 1 << 30)

    @property
    def weights(self) -> WeightFiles:
        """Where weights go."""
        return WeightFiles(self.root / "cache" / "deltas" / "weights", 1 << 30)

    def prepare(self, version: int = 1) -> PreparedVersion:
        """Prepare a version as a loader does."""
        folder = scan_repository(self.root / "models").models[ModelName("m")]
        return prepare_version(
            folder,
            version,
            read_deployment(folder.path),
            OrtModelRunner(),
            store=self.settings,
        )

    def target(self, version: int = 1) -> DeltaTarget:
        """Prepare a version and return it as the first delta finds it."""
        return target_of(self.prepare(version), self.folder(version))

    def apply(
        self,
        target: DeltaTarget,
        tensors: Mapping[str, NDArray[Any]] | None = None,
        rows: Mapping[str, list[RowChanges]] | None = None,
    ) -> tuple[UpdatedGraphs, DeltaTarget]:
        """Bring new weights; returns what was made, and the target of the next delta."""
        changes = WeightChanges(tensors or {}, rows or {})
        made = updated_graphs(target, changes, WeightPlaces.of(target), self.built, self.weights)
        return made, replace(target, model=made.model, graphs=made.files)


def target_of(prepared: PreparedVersion, folder: Path) -> DeltaTarget:
    """Return a prepared version as the first delta finds it."""
    model, cut = prepared.model, prepared.model.cut
    if cut is None:
        graphs = GraphFiles(model.path)
    else:
        graphs = GraphFiles(cut.dense.path, None if cut.user is None else cut.user.graph.path)
    return DeltaTarget(
        folder=folder,
        snapshot=prepared.snapshot,
        identity=prepared.identity,
        meaning=prepared.meaning,
        deployment=prepared.deployment,
        model=model,
        plan=None if prepared.store is None else prepared.store.plan,
        segment=None if prepared.store is None else prepared.store.segment,
        graphs=graphs,
        graph_note="",
        runs=(),
        examples=prepared.examples,
        ranking=prepared.ranking,
        user_inputs=prepared.user_inputs,
    )


def patched(source: Path, target: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write a model with other initializers, by ONNX's own library."""
    model = onnx.load(source)
    left = dict(weights)
    for initializer in model.graph.initializer:
        if initializer.name in left:
            new = onnx.numpy_helper.from_array(left.pop(initializer.name), initializer.name)
            initializer.CopyFrom(new)
    assert not left, f"no initializers {sorted(left)}"
    onnx.save(model, target)


def row_changes(keys: object, values: object, deleted: object = ()) -> RowChanges:
    """Return changes of rows, from lists or arrays."""
    return RowChanges(
        np.asarray(keys, np.int64), np.asarray(values, np.float32), np.asarray(deleted, np.int64)
    )


def answers(
    model: DenseModel, segment: Path | None, batches: list[Arrays]
) -> list[Mapping[str, NDArray[Any]]]:
    """Return what a model answers to batches, as it is served."""
    if model.cut is not None:
        assert segment is not None
        with open_cut_trial(model, segment) as trial:
            return [trial.run(batch) for batch in batches]
    runner = OrtModelRunner(is_optimized=model.optimized)
    return [runner.run(model.path, batch) for batch in batches]
