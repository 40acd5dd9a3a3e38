"""From a version that was found good to what crosses processes."""

from collections.abc import Sequence

from anabranch_model_store.preparation import PreparedVersion
from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.models import RowLayout
from anabranch_server.processes.arrays import array_plan
from anabranch_server.processes.plans import RowPlan, TensorPlan, VersionPlan
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["version_plan"]


def version_plan(prepared: PreparedVersion, costs: Sequence[BatchCost]) -> VersionPlan:
    """Return what a worker needs to build `prepared`, and what a supervisor shows of it."""
    manifest, model = prepared.manifest, prepared.model
    datatypes: dict[str, Datatype] = {spec.name: spec.datatype for spec in model.inputs}
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
            {name: array_plan(array, datatypes[name]) for name, array in example.items()}
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
