"""From plans, which cross processes, to the models that backends build: for workers and loader."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.cut_models import cut_model
from anabranch_runtime.lookups import lookups_of
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_server.processes.arrays import array_of
from anabranch_server.processes.plans import PartPlan, TensorPlan, VersionPlan
from anabranch_wire.errors import Internal
from anabranch_wire.plan import decode as decode_plan
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import DATATYPES, Datatype, TensorSpec

__all__ = ["dense_model", "examples", "snapshot", "tensor_specs"]


def snapshot(version: VersionPlan) -> Snapshot:
    """Return what the answers of a version name."""
    return Snapshot(version.model, version.version, version.delta)


def dense_model(version: VersionPlan) -> DenseModel:
    """Return what a backend builds.

    Raises:
        Internal: the plan contradicts itself.
        InvalidInput, Unsupported: its lookups do not fit the graph.
    """
    rows, inputs = version.rows, tensor_specs(version.inputs)
    lookups = cut = None
    if version.store is not None:
        plan = decode_plan(version.store.plan)
        if version.cut is None:
            lookups = lookups_of(plan, inputs, version.user_inputs)
        else:
            parts = version.cut
            cut = cut_model(
                plan,
                inputs,
                _part(parts.dense),
                None if parts.prelude is None else _part(parts.prelude),
                None if parts.user is None else _part(parts.user),
                parts.user_inputs,
            )
    try:
        layout = RowLayout(
            rows.independent,
            rows.min_rows,
            rows.input_axes,
            rows.output_axes,
            rows.reason,
            rows.splittable,
        )
        return DenseModel(
            Path(version.path),
            inputs,
            tensor_specs(version.outputs),
            layout,
            version.optimized,
            lookups,
            cut,
        )
    except ValueError as fault:
        raise Internal(f"plan of {snapshot(version)}: {fault}") from None


def examples(version: VersionPlan) -> list[Mapping[str, NDArray[np.generic]]]:
    """Return the requests to warm executors with.

    Raises:
        Corrupt: the bytes of an array do not fit its shape.
    """
    return [
        {name: array_of(array) for name, array in example.items()} for example in version.examples
    ]


def tensor_specs(plans: Iterable[TensorPlan]) -> tuple[TensorSpec, ...]:
    """Return inputs or outputs.

    Raises:
        Internal: a datatype is not known.
    """
    return tuple(map(_tensor, plans))


def _part(plan: PartPlan) -> DenseModel:
    """Return a graph of a cut model; what its rows do is known of the original."""
    inputs = tensor_specs(plan.inputs)
    outputs = tensor_specs(plan.outputs)
    return part_model(Path(plan.path), inputs, outputs, optimized=plan.optimized)


def _tensor(plan: TensorPlan) -> TensorSpec:
    if plan.datatype not in DATATYPES:
        raise Internal(f"tensor {plan.name[:200]!r}: datatype {plan.datatype[:40]!r} is not known")
    return TensorSpec(plan.name, cast(Datatype, plan.datatype), plan.shape)
