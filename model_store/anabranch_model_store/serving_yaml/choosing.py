"""Which versions are loaded and which of them answers: policy, labels, traffic, shadow."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from anabranch_wire.documents import Document

__all__ = ["Label", "Shadow", "Traffic", "VersionNumber", "VersionPolicy"]

Label = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,62}\Z")]
VersionNumber = Annotated[int, Meta(ge=1, le=10**18 - 1)]
Percent = Annotated[float, Meta(ge=0, le=100)]


class VersionPolicy(Document, frozen=True, kw_only=True):
    """Which versions are loaded: the newest ones, or named ones.

    Attributes:
        latest: how many of the newest.
        specific: these.
    """

    latest: Annotated[int, Meta(ge=1)] | None = None
    specific: tuple[VersionNumber, ...] | None = None

    def __post_init__(self) -> None:
        if (self.latest is None) == (self.specific is None):
            raise ValueError("expected {latest: N}, {specific: [N, ...]} or the word all")
        if self.specific is not None and len(set(self.specific)) != len(self.specific):
            raise ValueError("specific: a version stands there twice")
        if self.specific == ():
            raise ValueError("specific: expected at least one version")


class Traffic(Document, frozen=True, kw_only=True):
    """Where requests go that name neither version nor label.

    Attributes:
        default: label that answers what `split` leaves; None is the newest loaded version.
        split: label -> percent.
        sticky: feature, or `routing_key`, whose value keeps a caller on one side.
    """

    default: Label | None = None
    split: Mapping[Label, Percent] = msgspec.field(default_factory=dict)
    sticky: str | None = None

    def __post_init__(self) -> None:
        total = sum(self.split.values())
        if total > 100:
            raise ValueError(f"split: {total:g} percent; expected at most 100 together")


class Shadow(Document, frozen=True, kw_only=True):
    """A version that computes a share of the requests without answering them.

    Attributes:
        label: of that version.
        percent: of the requests.
        max_abs_diff: answers further apart count as different.
    """

    label: Label
    percent: Percent = 100.0
    max_abs_diff: Annotated[float, Meta(ge=0)] = 0.0
