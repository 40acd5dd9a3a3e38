"""What one model is to serve, complete enough for a worker to build it without the repository.

A loader makes `VersionPlan`s, a supervisor puts them into `StatePlan`s, workers build them. All of
it is immutable and crosses processes as msgpack.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_wire.plan import MAX_ROWS

__all__ = [
    "DESCRIPTORS_EACH",
    "ArrayPlan",
    "CapacityPlan",
    "CutPlan",
    "Example",
    "GenerationPlan",
    "GroupPlan",
    "PartPlan",
    "QueuePlan",
    "RowPlan",
    "RunPlan",
    "SplitPlan",
    "StatePlan",
    "StorePlan",
    "TensorPlan",
    "UpdatePlan",
    "VersionPlan",
]


class TensorPlan(msgspec.Struct, frozen=True):
    """A declared input or output; see `anabranch_wire.tensors.TensorSpec`."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ArrayPlan(msgspec.Struct, frozen=True):
    """One array: the raw bytes of the Open Inference Protocol's binary extension."""

    datatype: str
    shape: tuple[int, ...]
    data: bytes


Example = Mapping[str, ArrayPlan]
"""A request that the version computes: one array for each input."""


class RowPlan(msgspec.Struct, frozen=True):
    """How rows flow; see `anabranch_runtime.models.RowLayout`."""

    independent: bool
    min_rows: int
    input_axes: tuple[int | None, ...]
    output_axes: tuple[int | None, ...]
    reason: str
    splittable: bool


class CapacityPlan(msgspec.Struct, frozen=True):
    """Room of one table in a generation; see `anabranch_wire.plan.Capacity`."""

    arena_rows: int
    keys: int
    most_keys: int = MAX_ROWS


class StorePlan(msgspec.Struct, frozen=True):
    """Embedding rows of a version that are kept beside its graph, once for all workers.

    Attributes:
        segment: the file with the rows as published.
        segment_bytes: of that file.
        memory_bytes: of rows, indexes and all reserved room, once for all workers.
        plan: JSON of the `anabranch_wire.plan.Plan` that says how they are looked up.
        capacities: one for each table of the segment, in its order.
    """

    segment: str
    segment_bytes: int
    memory_bytes: int
    plan: bytes
    capacities: tuple[CapacityPlan, ...]


class PartPlan(msgspec.Struct, frozen=True):
    """One graph of a cut model.

    Attributes:
        path: its file.
        inputs: in its order.
        outputs: in its order.
        optimized: whether the file is the optimised form.
    """

    path: str
    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    optimized: bool = False


class CutPlan(msgspec.Struct, frozen=True):
    """A graph whose lookups were cut out; see `anabranch_runtime.cut_models.CutModel`.

    Attributes:
        dense: what is left.
        prelude: makes ids; None where the plan of the store says them all.
        user: runs once per user; None where all runs per row.
        user_inputs: inputs of the original that hold a user, as `user` was split off by.
    """

    dense: PartPlan
    prelude: PartPlan | None
    user: PartPlan | None
    user_inputs: tuple[str, ...]


class SplitPlan(msgspec.Struct, frozen=True):
    """What became of the lookups of a graph.

    Attributes:
        lookups_cut: lookups that the store does.
        lookups_left: lookups that stayed in the graph.
        max_abs_diff: the largest difference from the original that was seen.
    """

    lookups_cut: int
    lookups_left: int
    max_abs_diff: float


class RunPlan(msgspec.Struct, frozen=True):
    """What deltas that follow each other make of the rows of a store, as one change.

    Attributes:
        path: its file in the cache folder; see `docs/formats.md`.
        first: the first delta of it.
        last: the last one.
    """

    path: str
    first: int
    last: int


class UpdatePlan(msgspec.Struct, frozen=True):
    """What deltas turn the graphs of a version by; empty where they have changed none yet.

    Attributes:
        dense: the graph as it was before the library optimised it: the original, or what is left of
            it where its lookups were cut out.
        user: likewise, of the graph that runs once per user; None where there is none.
        weights: file with all of every weight that deltas have changed in these graphs, under the
            names of the original; None where they have changed none.
    """

    dense: str
    user: str | None = None
    weights: str | None = None


class VersionPlan(msgspec.Struct, frozen=True):
    """A version that was found good.

    Attributes:
        model: model name.
        version: its number.
        delta: newest applied delta; 0 is the version as published.
        identity: what its files are: digest of the manifest or of the folder.
        path: the ONNX file to build from.
        optimized: whether that is the optimised form, in the cache folder.
        inputs: in the graph's order.
        outputs: in the graph's order.
        rows: how rows flow through it.
        user_inputs: inputs that may be sent once per request.
        description: the modeller's words.
        examples: to warm executors with.
        warm_rounds: runs of each example on each executor.
        costs: rows and seconds of batches as measured on this machine; empty where they were not.
        store: rows that are looked up beside the graph; None where it does without.
        cut: what runs in place of the graph where its own lookups were cut out; then `store` has
            their tables.
        split: what became of its own lookups; None where they were not looked for.
        ranking: what its ranking doors do; None where it has none. Its item table is in memory
            once for all workers, as the rows of `store` are.
        weight_bytes: of its files, as the memory of one worker counts them.
        step: training step; None where the version does not say.
        event_time: newest event it was trained on, seconds since 1970.
        published: when it was published, seconds since 1970.
        notes: what an operator should know, in words.
        updates: how deltas reach its graphs; None where they cannot.
        runs: what deltas 1 to `delta` make of the rows of `store`, one after the other, each
            beginning where the one before ends.
        increment: the same from the delta that it was made from to `delta`; None where it was made
            from nothing, or that brought no rows.
    """

    model: str
    version: int
    delta: int
    identity: str
    path: str
    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    rows: RowPlan
    user_inputs: tuple[str, ...]
    description: str
    examples: tuple[Example, ...]
    warm_rounds: int
    weight_bytes: int
    step: int | None = None
    event_time: float | None = None
    published: float | None = None
    notes: tuple[str, ...] = ()
    optimized: bool = False
    costs: tuple[tuple[int, float], ...] = ()
    store: StorePlan | None = None
    cut: CutPlan | None = None
    split: SplitPlan | None = None
    ranking: RankingPlan | None = None
    updates: UpdatePlan | None = None
    runs: tuple[RunPlan, ...] = ()
    increment: RunPlan | None = None

    @property
    def kept_files(self) -> tuple[str, ...]:
        """Return the files of the cache folder that somebody may still ask for."""
        updates = self.updates
        graphs = () if updates is None else (updates.dense, updates.user, updates.weights)
        increment = () if self.increment is None else (self.increment,)
        return (
            *self.files,
            *(path for path in graphs if path is not None),
            *(run.path for run in (*self.runs, *increment)),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that workers build it from, and map."""
        parts = () if self.cut is None else (self.cut.dense, self.cut.prelude, self.cut.user)
        store = () if self.store is None else (self.store.segment,)
        ranking = () if self.ranking is None else self.ranking.files
        return (self.path, *(part.path for part in parts if part is not None), *store, *ranking)


class QueuePlan(msgspec.Struct, frozen=True):
    """Bounds and deadlines; they change without a rebuild. See `QueueSettings`."""

    max_requests: int
    max_rows: int
    default_timeout_s: float
    max_timeout_s: float
    priority_levels: int


class GroupPlan(msgspec.Struct, frozen=True):
    """How the executors of a model are run; a change of it rebuilds every version of the model.

    Attributes:
        backend: name of the dense backend.
        executors: of each worker.
        select: how a request finds its executor.
        cpusets: processors of each executor of the machine, worker 0's first; empty pins none.
        merge: whether requests share batches.
        max_rows: of a merged batch; None is found at load.
        max_delay_s: how long an idle executor waits for more.
        split_rows: rows worth an executor of their own; None is found at load, 0 never.
    """

    backend: str
    executors: int
    select: str
    cpusets: tuple[tuple[int, ...], ...]
    merge: bool
    max_rows: int | None
    max_delay_s: float
    split_rows: int | None


DESCRIPTORS_EACH: Final = 2
"""Descriptors that belong to a generation: the segment that it lies over, and its memory."""


class GenerationPlan(msgspec.Struct, frozen=True):
    """Which rows of a version are read: one generation of its store, at one store version.

    Attributes:
        version: number of the model version.
        number: of the generation; none is given out twice while the launcher lives.
        store_version: that lookups read, as the store counts its changes.
    """

    version: int
    number: int
    store_version: int


class StatePlan(msgspec.Struct, frozen=True):
    """What one model serves from some epoch on.

    Attributes:
        group: how it is run.
        queue: what may wait.
        versions: versions in memory, served or kept for a rollback, by rising number.
        served: numbers of the versions that requests may name.
        labels: label -> version, loaded or not.
        default: version that answers requests naming none; None when there is none.
        default_label: label that was to name it; None where it is the newest loaded one.
        required: whether readiness needs the model.
        generations: one for each of `versions` that has a store, in their order; filled in by
            whoever writes those stores.
        retain: deltas of each version whose rows stay readable after they were served, for a
            rollback without loading.
    """

    group: GroupPlan
    queue: QueuePlan
    versions: tuple[VersionPlan, ...] = ()
    served: tuple[int, ...] = ()
    labels: Mapping[str, int] = msgspec.field(default_factory=dict)
    default: int | None = None
    default_label: str | None = None
    required: bool = True
    generations: tuple[GenerationPlan, ...] = ()
    retain: int = 0

    def generation(self, version: int) -> GenerationPlan | None:
        """Return the generation of a version; None where it has no store."""
        return next((one for one in self.generations if one.version == version), None)
