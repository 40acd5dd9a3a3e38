"""A version that answers requests now: the immutable value that doors resolve and batches hold.

Whoever holds a `ServedVersion` may use it until it lets go; a reload makes a new one and never
changes an old one. Nothing but requests in flight and states of the catalog holds one for long:
what it runs on is kept by its `token`, and freed some time after the last holder has let go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.models import DenseModel
from anabranch_runtime.pacing import Pace
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.row_source import RowSource
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

if TYPE_CHECKING:
    from anabranch_runtime.session_group import SessionGroup

__all__ = ["Freshness", "ServedVersion"]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How new what a version learnt is.

    Attributes:
        step: of its training; None where it does not say.
        event_time: newest event it was trained on, seconds since 1970; None where it does not say.
    """

    step: int | None = None
    event_time: float | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ServedVersion:
    """One snapshot of a model with the session group that computes it.

    Attributes:
        snapshot: model, version, delta; named by every answer.
        model: files, tensors, row layout.
        rules: compiled checks for inputs.
        output_index: output name -> position in `model.outputs`.
        group: takes the tickets of this version.
        platform: protocol name of the format.
        description: the modeller's words, may be empty.
        user_inputs: names of inputs that may be sent once per request.
        mergeable: whether its requests may share a batch.
        max_rows: rows of a merged batch at most.
        fewest_rows: a run with fewer is padded to them; 0 = requests run as they came.
        uniform: whether requests differ in nothing but their rows, so that any two fit together.
        split_rows: rows that are worth an executor of their own; 0 = requests are never cut.
        company: one array per input of the graph: rows known to run, which go along with every
            batch of a graph that picks rows by their data; None where no batch needs company.
        company_rows: how many rows that is.
        token: names what the group keeps for it.
        pace: how long its batches take; the group's own.
        source: where its batches read table rows; None where it looks none up.
        ranking: makes rows of users and candidates; None where its model.yaml has no ranking.
        freshness: how new it is.
    """

    snapshot: Snapshot
    model: DenseModel
    rules: InputRules
    output_index: Mapping[str, int]
    group: "SessionGroup"
    platform: str = "onnxruntime_onnx"
    description: str = ""
    user_inputs: tuple[str, ...] = field(default=())
    mergeable: bool = False
    max_rows: int = 1
    fewest_rows: int = 0
    uniform: bool = False
    split_rows: int = 0
    company: tuple[NDArray[np.generic], ...] | None = None
    company_rows: int = 0
    token: int = 0
    pace: Pace = field(default_factory=Pace)
    source: RowSource | CutSource | None = None
    ranking: RankingRules | None = None
    freshness: Freshness = field(default_factory=Freshness)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What requests bring, as metadata shows it."""
        return self.model.request_inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Declared outputs, in the graph's order."""
        return self.model.outputs
