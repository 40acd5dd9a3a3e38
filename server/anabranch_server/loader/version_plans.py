"""From a version that was found good to what crosses processes."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.cut_versions import CutVersion
from anabranch_model_store.preparation import PreparedVersion
from anabranch_model_store.prepared_stores import PreparedStore
from anabranch_model_store.reduced_versions import ReducedVersion
from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_server.processes.arrays import array_plan
from anabranch_server.processes.plans import (
    ArrayPlan,
    CapacityPlan,
    CutPlan,
    PartPlan,
    RowPlan,
    SplitPlan,
    StorePlan,
    TensorPlan,
    UpdatePlan,
    VersionPlan,
)
from anabranch_wire.plan import encode as encode_plan
from anabranch_wire.tensors import Datatype, TensorSpec, datatype_of

__all__ = ["update_plan", "version_plan"]


def version_plan(
    prepared: PreparedVersion, costs: Sequence[BatchCost], updates: UpdatePlan | None = None
) -> VersionPlan:
    """Return what a worker needs to build a version, and what a supervisor shows of it.

    Args:
        prepared: the version, its graph as workers build it.
        costs: times of its batches.
        updates: how deltas reach its graphs; None where they cannot.
    """
    manifest, model = prepared.manifest, prepared.model
    datatypes = _datatypes(model)
    return VersionPlan(
        model=prepared.snapshot.model,
        version=prepared.snapshot.version,
        delta=prepared.snapshot.delta,
        identity=prepared.identity,
        path=str(model.path),
        inputs=_tensors(model.inputs),
        outputs=_tensors(model.outputs),
        rows=_rows(model.rows),
        user_inputs=prepared.user_inputs,
        description=prepared.meaning.description,
        examples=tuple(
            {name: _array(name, array, datatypes) for name, array in example.items()}
            for example in prepared.examples
        ),
        warm_rounds=prepared.deployment.warmup.rounds,
        weight_bytes=prepared.weight_bytes,
        step=None if manifest is None else manifest.step,
        event_time=None if manifest is None else manifest.event_time,
        published=None if manifest is None else manifest.created,
        notes=prepared.notes,
        optimized=model.optimized,
        costs=tuple((cost.rows, cost.seconds) for cost in costs),
        store=None if prepared.store is None else _store(prepared.store),
        cut=_cut(prepared),
        split=_split(prepared),
        ranking=prepared.ranking,
        updates=updates,
    )


def update_plan(prepared: PreparedVersion) -> UpdatePlan:
    """Return the graphs that deltas bring new weights to.

    Args:
        prepared: the version, before any of its graphs was replaced by an optimised form.
    """
    cut = prepared.model.cut
    if cut is None:
        return UpdatePlan(str(prepared.model.path))
    return UpdatePlan(str(cut.dense.path), None if cut.user is None else str(cut.user.graph.path))


def _cut(prepared: PreparedVersion) -> CutPlan | None:
    parts = prepared.model.cut
    if parts is None:
        return None
    return CutPlan(
        dense=_part(parts.dense),
        prelude=None if parts.prelude is None else _part(parts.prelude),
        user=None if parts.user is None else _part(parts.user.graph),
        user_inputs=tuple(parts.inputs[index].name for index in parts.user_inputs),
    )


def _split(prepared: PreparedVersion) -> SplitPlan | None:
    cut = prepared.cut
    if cut is None:
        return None
    left = sum(not verdict.cut for verdict in cut.verdicts)
    gone = len(cut.verdicts) - left if isinstance(cut, CutVersion) else 0
    worst = 0.0
    if isinstance(cut, CutVersion):
        worst = cut.parity.max_abs_diff
    elif isinstance(prepared.reduced, ReducedVersion):
        worst = prepared.reduced.reduction.parity.max_abs_diff
    return SplitPlan(gone, len(cut.verdicts) - gone, worst)


def _part(model: DenseModel) -> PartPlan:
    return PartPlan(
        str(model.path), _tensors(model.inputs), _tensors(model.outputs), model.optimized
    )


def _datatypes(model: DenseModel) -> dict[str, Datatype]:
    """Return the datatype of each input that a request may bring under its own name."""
    return {spec.name: spec.datatype for spec in (*model.inputs, *model.request_inputs)}


def _array(name: str, array: NDArray[np.generic], datatypes: Mapping[str, Datatype]) -> ArrayPlan:
    """Return an array of an example; lengths and weights of a feature are what they look like."""
    return array_plan(array, datatypes.get(name) or datatype_of(array.dtype))


def _store(store: PreparedStore) -> StorePlan:
    return StorePlan(
        segment=str(store.segment),
        segment_bytes=store.bytes,
        memory_bytes=store.memory_bytes,
        plan=encode_plan(store.plan),
        capacities=tuple(
            CapacityPlan(one.arena_rows, one.keys, one.most_keys) for one in store.capacities
        ),
    )


def _tensors(specs: tuple[TensorSpec, ...]) -> tuple[TensorPlan, ...]:
    return tuple(TensorPlan(spec.name, spec.datatype, spec.shape) for spec in specs)


def _rows(layout: RowLayout) -> RowPlan:
    return RowPlan(
        independent=layout.independent,
        min_rows=layout.min_rows,
        input_axes=layout.input_axes,
        output_axes=layout.output_axes,
        reason=layout.reason,
        splittable=layout.splittable,
    )
