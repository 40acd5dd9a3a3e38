"""Models as the admin API and the status page show them: values, filled by whoever keeps models."""

from dataclasses import dataclass

from anabranch_server.describe.repository import ModelState

__all__ = ["FailureView", "ModelView", "SplitView", "VersionView"]


@dataclass(frozen=True, slots=True)
class SplitView:
    """How the lookups of a version were cut out of its graph.

    Attributes:
        lookups_cut: lookups that are run by the store.
        lookups_left: lookups that stayed in the graph.
        max_abs_diff: largest difference from the uncut model that was seen.
    """

    lookups_cut: int
    lookups_left: int
    max_abs_diff: float


@dataclass(frozen=True, slots=True)
class FailureView:
    """The last thing that went wrong with a model.

    Attributes:
        when: seconds since 1970.
        version: version it was about; null for the model itself.
        delta: delta it was about; null for the version or model itself.
        reason: kind of failure, as in the metrics.
        error: what was found and what was expected.
    """

    when: float
    version: int | None
    delta: int | None
    reason: str
    error: str


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version. Times in seconds since 1970; null where the version does not say.

    Attributes:
        version: version number.
        state: what it can do now.
        delta: newest applied delta; 0 is the version as published.
        step: training step.
        event_time: newest event it was trained on.
        published: when it was published.
        applied: when it was first served.
        structure_hash: identity of its graph without the weights.
        split: what the optimiser did.
        last_error: why its files, as they are now, or its newest delta were refused.
        kept: in memory for a rollback, but not served; its state is UNAVAILABLE then.
    """

    version: int
    state: ModelState
    delta: int
    step: int | None = None
    event_time: float | None = None
    published: float | None = None
    applied: float | None = None
    structure_hash: str | None = None
    split: SplitView | None = None
    last_error: str | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model.

    Attributes:
        name: model name.
        state: READY when it answers requests that name no version.
        pinned: snapshot it is held at by a rollback.
        policy: which versions it serves.
        labels: label -> version.
        versions: those in memory, on their way in or out, or refused, newest first.
        last_error: the last failure.
    """

    name: str
    state: ModelState
    pinned: str | None
    policy: dict[str, object] | None
    labels: dict[str, int]
    versions: list[VersionView]
    last_error: FailureView | None
