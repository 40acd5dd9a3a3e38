"""A version's ranking, compiled: from a ranking request to rows, and from outputs to an order.

```
RankRequest -> prepare -> PreparedRanking -> (rows are scored) -> finish -> Ranked
```
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.completion import Completion
from anabranch_runtime.ranking.faults import bad_candidates
from anabranch_runtime.ranking.feature_program import COUNTS, ColumnLimits, FeatureProgram
from anabranch_runtime.ranking.heads import Head
from anabranch_runtime.ranking.item_table import ItemTable
from anabranch_runtime.ranking.ordering import best_first
from anabranch_runtime.ranking.placement import Placement, unknown_name
from anabranch_runtime.ranking.plan_checks import (
    check_heads,
    check_routing_key,
    index_of,
    repeated_inputs,
    score_weights,
)
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_runtime.ranking.requests import ArrayColumn, Column, Missed, Ranked, RankRequest
from anabranch_runtime.ranking.scores import score
from anabranch_runtime.ranking.sequences import SequenceCompletion
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec

__all__ = ["PreparedRanking", "RankingRules"]

Array = NDArray[np.generic]

_DEFAULTED = COUNTS.index("defaulted")


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRanking:
    """A ranking request whose features are ready to be scored.

    Attributes:
        request: as it was sent.
        rows: candidates; all of them are scored, those at fault as what stands in for them.
        arrays: for `InputRules.order`; some are read-only views that repeat a user for each row.
        heads: outputs of the graph that are needed: of the score, then those asked for; each once.
        counts: int64 (features, 5); see `feature_program.COUNTS`.
        defaulted: features whose default stands in for at least one row, in the plan's order.
        missed: feature -> what the item table did not have.
        bad: position -> why the candidate is not scored.
        routing_key: of the request, or what the plan takes for it.
    """

    request: RankRequest
    rows: int
    arrays: Mapping[str, Array]
    heads: tuple[str, ...]
    counts: NDArray[np.int64]
    defaulted: tuple[str, ...] = ()
    missed: Mapping[str, Missed] = field(default_factory=dict)
    bad: Mapping[int, str] = field(default_factory=dict)
    routing_key: str | int | None = None


class RankingRules:
    """Ranking of one version. Immutable; any thread may call it.

    Args:
        plan: what to do.
        outputs: of the graph.

    Attributes:
        plan: as given.

    Raises:
        Corrupt, Unavailable: a file that the plan names is damaged or cannot be read.
        ValueError: the plan contradicts itself or the outputs.
    """

    def __init__(self, plan: RankingPlan, outputs: tuple[TensorSpec, ...]) -> None:
        self.plan = plan
        self._placement = Placement(plan.features)
        self._program = FeatureProgram(plan)
        self._id_index = index_of(plan, plan.id, "candidate")
        items = None if plan.item_table is None else ItemTable.open(plan.item_table)
        self._completion = Completion(plan, self._program, items)
        self._sequences = SequenceCompletion(plan, self._program, items)
        self._key_index = None
        if plan.routing_key is not None:
            self._key_index = index_of(plan, plan.routing_key, "user")
            check_routing_key(plan.features[self._key_index])
        self._heads: Mapping[str, Head] = {
            spec.name: Head(spec, plan.calibration.get(spec.name)) for spec in outputs
        }
        self._weights = score_weights(plan)
        self._repeated = repeated_inputs(plan)
        check_heads(plan, self._heads)

    def prepare(self, request: RankRequest, limits: ColumnLimits) -> PreparedRanking:
        """Make the graph's inputs of a request.

        Raises:
            InvalidInput: names feature, row, found and expected: `feature 'price', candidate 1:
                expected a number, got "12"`.
            TooLarge: a limit is passed.
        """
        plan, form = self.plan, request.form
        heads = self._needed(request.outputs)
        columns = self._placement.place(request)
        if columns[self._id_index] is None:  # answers name candidates by their ids
            raise InvalidInput(f"feature {plan.id!r}: expected the ids of the candidates, got none")
        sequences = self._sequences.complete(columns, form, limits)
        completed = self._completion.complete(sequences.columns, form, limits)
        made = self._program.run(completed.columns, form, 0, limits)
        bad: Mapping[int, str] = {}
        if made.faults or sequences.own:
            faults = completed.faults(sequences.faults(made.faults), self._id_index)
            bad = bad_candidates(plan.features, faults, report=plan.report_bad)
        defaulted = made.counts[:, _DEFAULTED]
        missed = sequences.missed
        if completed.missed is not None:
            missed = {**missed, plan.id: completed.missed}
        arrays = made.arrays
        if self._repeated:
            arrays = {**arrays, **_for_each_row(arrays, self._repeated, made.rows, limits)}
        return PreparedRanking(
            request=request,
            rows=made.rows,
            arrays=arrays,
            heads=heads,
            counts=made.counts,
            defaulted=tuple([plan.features[at].name for at in defaulted.nonzero()[0].tolist()]),
            missed=missed,
            bad=bad,
            routing_key=self._routing_key(request, columns, limits),
        )

    def finish(
        self, prepared: PreparedRanking, outputs: Mapping[str, NDArray[np.generic]]
    ) -> Ranked:
        """Calibrate, score and order.

        Args:
            prepared: what `prepare` made.
            outputs: head -> its rows, for all of `prepared.heads`; none are needed where there are
                no candidates.

        Returns:
            Arrays that nothing else refers to. A head of one number a row has the shape (k,).

        Raises:
            InvalidInput: a head that the score is made of has not one number a row.
        """
        plan, rows, request = self.plan, prepared.rows, prepared.request
        heads = self._heads
        with np.errstate(all="ignore"):  # what is no number is counted, and comes last
            numbers = {
                name: heads[name].numbers(outputs[name], rows) if rows else heads[name].nothing()
                for name in prepared.heads
            }
            single = {name: heads[name].single(numbers[name]) for name in self._weights}
            scores = score(plan.formula, self._weights, single).astype(np.float32)
            if prepared.bad:
                scored = np.delete(np.arange(rows), list(prepared.bad))
                scores = scores[scored]
                places = best_first(scores, request.top_k, descending=plan.descending)
                positions = scored[places]
            else:
                places = positions = best_first(scores, request.top_k, descending=plan.descending)
            answered = {
                name: numbers[name].take(positions, axis=0).astype(np.float32)
                for name in request.outputs
            }
        return Ranked(
            positions=positions.astype(np.uint32),
            scores=scores.take(places),
            outputs=answered,
            nan_scores=int(np.count_nonzero(np.isnan(scores))),
            bad=prepared.bad,
        )

    def _needed(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Return the heads that a request needs.

        Raises:
            InvalidInput: it asks for one that does not exist, or that has no numbers.
        """
        if not asked:
            return self.plan.heads
        for name in asked:
            head = self._heads.get(name)
            if head is None:
                raise InvalidInput(unknown_name("output", name, self._heads))
            if not head.is_numeric:
                raise InvalidInput(f"output {name!r}: expected an output of numbers, got strings")
        return tuple(dict.fromkeys((*self.plan.heads, *asked)))

    def _routing_key(
        self, request: RankRequest, columns: list[Column | ArrayColumn | None], limits: ColumnLimits
    ) -> str | int | None:
        """Return the request's routing key, or the user's value of the feature that stands for it.

        None where that was left out: its default would route all such users to one place.
        """
        at = self._key_index
        if request.routing_key is not None or at is None:
            return request.routing_key
        column = columns[at]
        if column is None or isinstance(column, ArrayColumn):
            return None
        read, _ = self._program.read(at, column, request.form, limits)
        if read.missing is not None and read.missing.any():
            return None
        if read.offsets is not None:
            return read.values.tobytes().decode()
        return int(read.values[0])


def _for_each_row(
    arrays: Mapping[str, Array], names: tuple[str, ...], rows: int, limits: ColumnLimits
) -> dict[str, Array]:
    """Return views of users' inputs that repeat their only row.

    Raises:
        TooLarge: that is more than a caller could send.
    """
    views: dict[str, Array] = {}
    for name in names:
        array = arrays[name]
        if array.size * rows > limits.max_values:
            raise TooLarge(
                f"input {name!r}: {array.size} values of the user for each of {rows} candidates "
                f"are more than the limit of {limits.max_values}"
            )
        views[name] = np.broadcast_to(array, (rows, *array.shape[1:]))
    return views
