"""A version built, bound and warmed for the executors of a session group, before it is served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.backends.protocol import Binding, DenseBackend, Engine
from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_engines import build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.examples import examples_of
from anabranch_runtime.models import DenseModel
from anabranch_runtime.pacing import pace_of
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.row_source import RowSource, StoreView
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.settings import GroupSettings
from anabranch_runtime.warming import BatchPlan, batch_plan, company_of, measured_costs, warm
from anabranch_wire.snapshots import Snapshot

if TYPE_CHECKING:
    from anabranch_runtime.session_group import SessionGroup

__all__ = ["BuiltVersion", "build_version"]

Inputs = tuple[NDArray[np.generic], ...]
"""One array per input of the graph, in its order."""


@dataclass(frozen=True, slots=True)
class BuiltVersion:
    """An engine with a binding for each executor, warm; whoever has it closes it or hands it on.

    Attributes:
        model: what was built.
        engine: that computes it.
        bindings: one for each executor.
        rules: of its inputs.
        source: where it looks up rows; None where it looks none up.
        requests: what it was warmed with, each with its number of rows.
        plan: how its batches are made.
        user_inputs: inputs that may be sent once per request.
    """

    model: DenseModel
    engine: Engine
    bindings: Sequence[Binding]
    rules: InputRules
    source: RowSource | CutSource | None
    requests: Sequence[tuple[Inputs, int]]
    plan: BatchPlan
    user_inputs: tuple[str, ...]

    def served(
        self,
        group: "SessionGroup",
        token: int,
        snapshot: Snapshot,
        *,
        description: str,
        ranking: RankingRules | None,
        freshness: Freshness,
    ) -> ServedVersion:
        """Return it as a group serves it.

        Args:
            group: computes it from now on, and owns its engine.
            token: names it there.
            snapshot: what it is.
            description: the modeller's words.
            ranking: of users and candidates, where it has any.
            freshness: how new it is.
        """
        layout, plan = self.model.rows, self.plan
        uniform = layout.can_merge and all(-1 not in spec.shape[1:] for spec in self.rules.specs)
        company, company_rows = company_of(layout, self.requests) if uniform else (None, 0)
        return ServedVersion(
            snapshot=snapshot,
            model=self.model,
            rules=self.rules,
            output_index={spec.name: i for i, spec in enumerate(self.model.outputs)},
            group=group,
            description=description,
            user_inputs=self.user_inputs,
            mergeable=plan.mergeable,
            max_rows=plan.max_rows,
            fewest_rows=layout.min_rows if layout.can_pad else 0,
            uniform=uniform,
            split_rows=plan.split_rows,
            company=company,
            company_rows=company_rows,
            token=token,
            pace=pace_of(
                plan.costs,
                full_rows=plan.max_rows if plan.mergeable else 0,
                typical_rows=max([rows for _, rows in self.requests], default=1),
            ),
            source=self.source,
            ranking=ranking,
            freshness=freshness,
        )

    def close(self) -> None:
        """Free what was built; nobody serves it."""
        _close(self.engine, self.bindings)


def build_version(
    backend: DenseBackend,
    settings: GroupSettings,
    model: DenseModel,
    examples: Sequence[Mapping[str, NDArray[np.generic]]],
    store: StoreView | None,
    *,
    warm_rounds: int,
    user_inputs: tuple[str, ...],
    costs: Sequence[BatchCost],
    ending: Cancellation,
) -> BuiltVersion:
    """Build a version, bind it for every executor of a group, and warm it; see `SessionGroup.load`.

    Raises:
        InvalidInput: the graph cannot be built or cannot compute an example, or the store has
            other tables than the lookups.
        Cancelled: it was ended early.
    """
    rules = InputRules.of(model, user_inputs, settings.max_repeated_bytes)
    source = _source_of(model, store)
    beside = source if isinstance(source, RowSource) else None
    cut = source if isinstance(source, CutSource) else None
    prepared = examples_of(examples, rules, model.rows.input_axes, beside)
    requests, look_up = prepared.requests, prepared.look_up
    engine = build_engine(backend, model, ending)
    bindings: list[Binding] = []
    try:
        for _ in range(settings.executors):
            bindings.append(engine.bind())
            warm(bindings[-1], requests, warm_rounds, ending, cut)
        plan = batch_plan(
            settings.batching,
            model.rows,
            costs
            or measured_costs(
                model.rows, bindings[0], requests, ending, look_up=look_up, source=cut
            ),
        )
    except BaseException:
        _close(engine, bindings)
        raise
    return BuiltVersion(model, engine, bindings, rules, source, requests, plan, user_inputs)


def _close(engine: Engine, bindings: Sequence[Binding]) -> None:
    for binding in bindings:
        binding.close()
    engine.close()


def _source_of(model: DenseModel, store: StoreView | None) -> RowSource | CutSource | None:
    """Compile the lookups of a model, if it has any; then there must be a view."""
    if model.cut is None:
        return RowSource.of(model.lookups, store)
    if store is None:
        raise ValueError("a model with lookups needs a store")
    return CutSource.open(model.cut, store)
