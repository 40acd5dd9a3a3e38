"""One ranked request on its way into the log: references, and nothing that was copied."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.requests import RankRequest, SentColumns
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_runtime.served import ServedVersion
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

__all__ = ["Entry"]

_NOTHING: Final[SentColumns] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A request that was ranked.

    Attributes:
        request_id: as echoed.
        time: when it was answered, seconds since 1970.
        snapshot: what answered it.
        rules: that it was ranked by.
        prepared: its features, without the bytes they came in; asks for all candidates and for all
            heads that were computed.
        top_k: candidates that the answer had at most; 0 is all.
        outputs: head -> its rows as the graph gave them; for all of `prepared.heads`.
        declared: all outputs of the model.
        version: what answered it, for as long as somebody else holds it: a log that is slow must
            not keep a version in memory.
    """

    request_id: str
    time: float
    snapshot: Snapshot
    rules: RankingRules
    prepared: PreparedRanking
    top_k: int
    outputs: Mapping[str, NDArray[np.generic]]
    declared: tuple[TensorSpec, ...]
    version: "ref[ServedVersion]"

    @classmethod
    def of(
        cls,
        request_id: str,
        version: ServedVersion,
        rules: RankingRules,
        prepared: PreparedRanking,
        outputs: Mapping[str, NDArray[np.generic]],
    ) -> Self:
        """Make an entry of a request that was answered just now; see `FeatureLog.offer`."""
        # Not `dataclasses.replace`, which takes several times as long.
        request = prepared.request
        bare = RankRequest(request.form, _NOTHING, _NOTHING, outputs=prepared.heads)
        return cls(
            request_id=request_id,
            time=time.time(),
            snapshot=version.snapshot,
            rules=rules,
            prepared=PreparedRanking(
                bare,
                prepared.rows,
                prepared.arrays,
                prepared.heads,
                prepared.counts,
                missed=prepared.missed,
                bad=prepared.bad,
            ),
            top_k=request.top_k,
            outputs=outputs,
            declared=version.outputs,
            version=ref(version),
        )

    @property
    def bytes(self) -> int:
        """Size of the arrays that it refers to."""
        arrays = [*self.prepared.arrays.values(), *self.outputs.values()]
        return sum([array.nbytes for array in arrays])
