"""A version as it crosses processes, and as deltas are applied to it: one made of the other."""

import re
from pathlib import Path
from typing import Final

import msgspec

from anabranch_model_store.containment import read_inside
from anabranch_model_store.deltas.application import AppliedDeltas
from anabranch_model_store.deltas.targets import DeltaTarget, GraphFiles, Run
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_model_store.yaml_text import MAX_BYTES
from anabranch_server.processes.planned_models import dense_model, examples
from anabranch_server.processes.plans import RunPlan, UpdatePlan, VersionPlan
from anabranch_wire.errors import NotFound
from anabranch_wire.plan import decode as decode_plan
from anabranch_wire.snapshots import Snapshot

__all__ = ["delta_target", "read_meaning_of", "updated_plan"]

_MEANING: Final = "model.yaml"
_OF_DELTA: Final = re.compile(r"delta \d+: ")
_NO_UPDATES: Final = "its graphs take no new weights"


def read_meaning_of(version: Path, model: Path) -> ModelMeaning:
    """Return what a version means, which no delta changes.

    Args:
        version: its folder.
        model: the model's folder.

    Raises:
        InvalidInput, TooLarge, Unsupported, Unavailable: as `read_meaning`.
    """
    for folder in (version, model):
        try:
            return read_yaml(read_inside(folder, _MEANING, MAX_BYTES), ModelMeaning, _MEANING)
        except NotFound:
            continue
    return ModelMeaning()


def delta_target(
    plan: VersionPlan, folder: Path, meaning: ModelMeaning, deployment: Deployment
) -> DeltaTarget:
    """Return what deltas are applied to.

    Args:
        plan: the version as it is.
        folder: of it, as the repository shows it.
        meaning: its model.yaml.
        deployment: the model's serving.yaml.

    Raises:
        AnabranchError: the plan contradicts itself.
    """
    updates = plan.updates
    graphs = None
    if updates is not None:
        graphs = GraphFiles(Path(updates.dense), _path(updates.user), _path(updates.weights))
    return DeltaTarget(
        folder=folder,
        snapshot=Snapshot(plan.model, plan.version, plan.delta),
        identity=plan.identity,
        meaning=meaning,
        deployment=deployment,
        model=dense_model(plan),
        plan=None if plan.store is None else decode_plan(plan.store.plan),
        segment=None if plan.store is None else Path(plan.store.segment),
        graphs=graphs,
        graph_note="" if graphs is not None else _NO_UPDATES,
        runs=tuple(Run(Path(run.path), run.first, run.last) for run in plan.runs),
        examples=examples(plan),
        ranking=plan.ranking,
        user_inputs=plan.user_inputs,
    )


def updated_plan(plan: VersionPlan, applied: AppliedDeltas) -> VersionPlan:
    """Return a version as deltas have made it.

    Args:
        plan: the version as it was.
        applied: what came of its deltas.
    """
    newest, target = applied.newest, applied.target
    if newest is None:
        return plan
    parts, cut = target.model.cut, plan.cut
    if parts is not None and cut is not None:
        prelude, user = cut.prelude, cut.user
        if prelude is not None and parts.prelude is not None:
            prelude = msgspec.structs.replace(prelude, path=str(parts.prelude.path))
        if user is not None and parts.user is not None:
            user = msgspec.structs.replace(user, path=str(parts.user.graph.path))
        dense = msgspec.structs.replace(
            cut.dense, path=str(parts.dense.path), optimized=parts.dense.optimized
        )
        cut = msgspec.structs.replace(cut, dense=dense, prelude=prelude, user=user)
    kept = (note for note in plan.notes if not _OF_DELTA.match(note))
    return msgspec.structs.replace(
        plan,
        delta=newest.sequence,
        path=str(target.model.path),
        optimized=target.model.optimized,
        cut=cut,
        ranking=target.ranking,
        step=plan.step if newest.step is None else newest.step,
        event_time=plan.event_time if newest.event_time is None else newest.event_time,
        published=newest.created,
        notes=(*kept, *(f"delta {newest.sequence}: {note}" for note in applied.notes)),
        updates=_updates(target.graphs),
        runs=tuple(map(_run, target.runs)),
        increment=None if applied.increment is None else _run(applied.increment),
    )


def _updates(graphs: GraphFiles | None) -> UpdatePlan | None:
    if graphs is None:
        return None
    user = None if graphs.user is None else str(graphs.user)
    weights = None if graphs.weights is None else str(graphs.weights)
    return UpdatePlan(str(graphs.dense), user, weights)


def _run(run: Run) -> RunPlan:
    return RunPlan(str(run.path), run.first, run.last)


def _path(path: str | None) -> Path | None:
    return None if path is None else Path(path)
