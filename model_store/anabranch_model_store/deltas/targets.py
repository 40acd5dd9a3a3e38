"""What deltas are applied to, and what comes of that: values between their steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_runtime.models import DenseModel
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_wire.plan import Plan
from anabranch_wire.snapshots import Snapshot

__all__ = ["DeltaTarget", "GraphFiles", "RowChanges", "Run", "WeightChanges"]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of deltas `first` to `last`, as one change; see `docs/formats.md`.

    Attributes:
        path: its file in the cache folder.
        first: the first delta of it.
        last: the last one.
    """

    path: Path
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """Graphs that deltas bring new weights to.

    Attributes:
        dense: as it was before the library optimised it: the original, or what is left of it.
        user: likewise, of the graph that runs once per user; None where there is none.
        weights: file with all of every weight that deltas have changed, under the names of the
            original; None where they have changed none.
    """

    dense: Path
    user: Path | None = None
    weights: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DeltaTarget:
    """A version at some delta, as far as it matters to the next ones.

    Attributes:
        folder: of the version, as the repository shows it.
        snapshot: model, version, and the newest delta that it has.
        identity: that deltas name as their base.
        meaning: its model.yaml.
        deployment: the model's serving.yaml.
        model: what workers build now.
        plan: how its rows are looked up, and where weights went; None where it has no store.
        segment: its rows as published; None where it has no store.
        graphs: what deltas may change; None where its graph takes no new weights.
        graph_note: why it takes none, in words; "" where it does.
        runs: rows of deltas up to now.
        examples: requests that it computes.
        ranking: what its ranking doors do.
        user_inputs: inputs and features that may be sent once per request.
    """

    folder: Path
    snapshot: Snapshot
    identity: str
    meaning: ModelMeaning
    deployment: Deployment
    model: DenseModel
    plan: Plan | None
    segment: Path | None
    graphs: GraphFiles | None
    graph_note: str
    runs: tuple[Run, ...]
    examples: Sequence[Mapping[str, NDArray[np.generic]]]
    ranking: RankingPlan | None
    user_inputs: tuple[str, ...]

    @property
    def lost_file(self) -> Path | None:
        """A file that its graphs or items are made of and that has gone; None where all are there.

        What fails then is no fault of a delta.
        """
        cut, graphs = self.model.cut, self.graphs
        files: list[Path | None] = []
        if graphs is not None:
            files += [graphs.dense, graphs.user, graphs.weights]
            if cut is None:
                files.append(self.model.path)
        if cut is not None:
            files.append(cut.dense.path)
            files.append(None if cut.prelude is None else cut.prelude.path)
            files.append(None if cut.user is None else cut.user.graph.path)
        if self.ranking is not None:
            files += map(Path, self.ranking.files)
        return next((path for path in files if path is not None and not path.exists()), None)


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """Rows of one table.

    Attributes:
        keys: (n,) int64, any order; of a key that is there twice the last row counts.
        values: (n, dim) float32.
        deleted: (m,) int64; none of them is among `keys`.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.float32]
    deleted: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class WeightChanges:
    """What one delta, or several one after the other, change in the graphs of a version.

    Attributes:
        tensors: whole weights, by the name in the original.
        rows: rows of tables that stayed in a graph, by the name in the original; they come after
            `tensors` of the same name.
    """

    tensors: Mapping[str, NDArray[np.generic]]
    rows: Mapping[str, Sequence[RowChanges]]
