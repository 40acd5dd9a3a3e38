"""Golden requests that come with a delta: run on the version as it will be, before the switch.

They go through all that a caller's request goes through: decoding, hashing, lookup in the rows as
of that delta, the new graphs, calibration. For as long as they run, a generation of the store's
index lies in the memory of whoever runs them, beside those that are served.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.attempt_files import attempt_files
from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_model_store.golden.cases import read_cases
from anabranch_model_store.golden.policy import proven
from anabranch_model_store.golden.proof import prove_cases
from anabranch_model_store.serving_yaml import Deployment
from anabranch_runtime.models import DenseModel
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_wire.delta import Delta
from anabranch_wire.snapshots import Snapshot

__all__ = ["delta_golden_notes"]


def delta_golden_notes(target: DeltaTarget, folder: Path, delta: Delta) -> tuple[str, ...]:
    """Run the golden requests of a delta as serving.yaml says; return what is to be said.

    Args:
        target: the version with the delta applied: new graphs, new items, and runs up to it.
        folder: of the delta's attempt, whose files were found to be right.
        delta: as it was published.

    Raises:
        Mismatch: a key or a score is another (`golden: refuse`); the message names the first one.
        InvalidInput: a golden file is malformed or does not fit the version (`golden: refuse`).
        AnabranchError: the version cannot be built, or its rows not be replayed (`golden: refuse`).
    """
    policy = target.deployment.golden
    if policy == "off" or not delta.golden:
        return ()
    runs = tuple(run.path for run in target.runs)
    _, note = proven(
        policy,
        lambda: prove_cases(
            read_cases(attempt_files(folder, delta), delta.golden), _tried(target), runs
        ),
    )
    return (note,) if note else ()


@dataclass(frozen=True, slots=True)
class _Rows:
    """See `GoldenRows`."""

    segment: Path


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """See `GoldenVersion`."""

    snapshot: Snapshot
    model: DenseModel
    user_inputs: tuple[str, ...]
    examples: Sequence[Mapping[str, NDArray[np.generic]]]
    store: _Rows | None
    deployment: Deployment
    ranking: RankingPlan | None


def _tried(target: DeltaTarget) -> _Tried:
    return _Tried(
        snapshot=target.snapshot,
        model=target.model,
        user_inputs=target.user_inputs,
        examples=target.examples,
        store=None if target.segment is None else _Rows(target.segment),
        deployment=target.deployment,
        ranking=target.ranking,
    )
