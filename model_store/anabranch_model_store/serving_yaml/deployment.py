"""`serving.yaml`: how a model is deployed; frozen, with every default."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from anabranch_model_store.serving_yaml.choosing import (
    Label,
    Shadow,
    Traffic,
    VersionNumber,
    VersionPolicy,
)
from anabranch_model_store.serving_yaml.execution import Batching, Executors, Memory, Queue
from anabranch_wire.documents import Document

__all__ = ["Deltas", "Deployment", "Warmup"]


class Deltas(Document, frozen=True, kw_only=True):
    """What happens to deltas.

    Attributes:
        apply: as they appear, or only when asked.
        non_finite: what NaN and infinities in them mean.
        verify: whether checksums are taken before or after the switch.
    """

    apply: Literal["auto", "manual"] = "auto"
    non_finite: Literal["refuse", "allow"] = "refuse"
    verify: Literal["before", "after"] = "before"


class Warmup(Document, frozen=True, kw_only=True):
    """What a version runs before it answers.

    Attributes:
        rounds: on every executor and bucket.
        generate: make inputs where the version brings none.
    """

    rounds: Annotated[int, Meta(ge=0, le=10_000)] = 5
    generate: bool = True


class Deployment(Document, frozen=True, kw_only=True):
    """All of serving.yaml. `Deployment()` is how a model without the file is run.

    Attributes:
        format: of the file.
        required: whether readiness needs the model.
        memory: bound on what its versions take.
        executors: backend and executors.
        batching: merging and splitting.
        queue: bounds and deadlines (live).
        versions: which versions are loaded (live).
        keep_previous: unserved versions kept in memory for a rollback (live).
        labels: label -> version (live).
        traffic: where requests go that name no version (live).
        shadow: a version that computes along (live).
        deltas: what happens to deltas (live).
        catch_up: whether a new version must have caught up with what is served (live).
        golden: what a failing golden request means (live).
        warmup: what a version runs before it answers (live).
        extra: free.
    """

    format: Literal[1] = 1
    required: bool = True
    memory: Memory = msgspec.field(default_factory=Memory)
    executors: Executors = msgspec.field(default_factory=Executors)
    batching: Batching = msgspec.field(default_factory=Batching)
    queue: Queue = msgspec.field(default_factory=Queue)
    versions: VersionPolicy | Literal["all"] = msgspec.field(
        default_factory=lambda: VersionPolicy(latest=1)
    )
    keep_previous: Annotated[int, Meta(ge=0, le=1000)] = 1
    labels: Mapping[Label, VersionNumber] = msgspec.field(default_factory=dict)
    traffic: Traffic = msgspec.field(default_factory=Traffic)
    shadow: Shadow | None = None
    deltas: Deltas = msgspec.field(default_factory=Deltas)
    catch_up: Literal["require", "allow"] = "require"
    golden: Literal["refuse", "warn", "off"] = "refuse"
    warmup: Warmup = msgspec.field(default_factory=Warmup)
    extra: Mapping[str, object] = msgspec.field(default_factory=dict)
