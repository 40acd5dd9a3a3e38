"""A version's ranking, compiled: from a ranking request to rows, and from outputs to an order.

```
RankRequest -> prepare -> PreparedRanking -> (rows are scored) -> finish -> Ranked
```
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_runtime.ranking.requests import Missed, Ranked, RankRequest
from anabranch_wire.tensors import TensorSpec

__all__ = ["PreparedRanking", "RankingRules"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRanking:
    """A ranking request whose features are ready to be scored.

    Attributes:
        request: as it was sent.
        rows: candidates; all of them are scored, those at fault as what stands in for them.
        arrays: for `InputRules.order`.
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
        raise NotImplementedError

    def prepare(self, request: RankRequest, limits: ColumnLimits) -> PreparedRanking:
        """Make the graph's inputs of a request.

        Raises:
            InvalidInput: names feature, row, found and expected: `feature 'price', candidate 1:
                expected a number, got "12"`.
            TooLarge: a limit is passed.
        """
        raise NotImplementedError

    def finish(
        self, prepared: PreparedRanking, outputs: Mapping[str, NDArray[np.generic]]
    ) -> Ranked:
        """Calibrate, score and order.

        Args:
            prepared: what `prepare` made.
            outputs: head -> its rows, for all of `prepared.heads`.

        Raises:
            InvalidInput: a head that the score is made of has not one number a row.
        """
        raise NotImplementedError
