"""How scores are made of outputs and ranked: the ranking doors, calibration, EasyRec names."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from anabranch_model_store.model_yaml.values import Name, check_one_of
from anabranch_wire.documents import Document

__all__ = ["Calibration", "EasyRec", "Isotonic", "Ranking", "Score"]


class Score(Document, frozen=True, kw_only=True):
    """The number that candidates are ranked by; one of three forms.

    Attributes:
        output: one output head as it is.
        weighted_sum: head -> weight.
        product_of_powers: head -> exponent.
    """

    output: Name | None = None
    weighted_sum: Mapping[Name, float] | None = None
    product_of_powers: Mapping[Name, float] | None = None

    def __post_init__(self) -> None:
        check_one_of(self, "output", "weighted_sum", "product_of_powers")
        if not self.heads:
            raise ValueError("expected at least one output head")

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the output heads that it needs."""
        if self.output is not None:
            return (self.output,)
        return tuple(self.weighted_sum or self.product_of_powers or ())


class Ranking(Document, frozen=True, kw_only=True):
    """What the ranking doors do with the outputs.

    Attributes:
        id: the candidate feature that answers echo.
        score: what is ranked by.
        order: which end comes first.
        item_table: completes candidates that are sent as ids alone.
        routing_key: user feature that keeps a user on one path.
        on_bad_candidate: refuse the request, or rank the rest and report.
    """

    id: Name
    score: Score
    order: Literal["descending", "ascending"] = "descending"
    item_table: Name | None = None
    routing_key: Name | None = None
    on_bad_candidate: Literal["error", "report"] = "error"


class Isotonic(Document, frozen=True, kw_only=True):
    """A non-decreasing function through points, straight between them.

    Attributes:
        x: strictly increasing.
        y: as many, non-decreasing.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or len(self.x) < 2:
            raise ValueError(
                f"found {len(self.x)} x and {len(self.y)} y; expected as many, at least 2"
            )
        if not all(low < high for low, high in pairwise(self.x)):
            raise ValueError("x: expected increasing numbers")
        if not all(low <= high for low, high in pairwise(self.y)):
            raise ValueError("y: expected numbers that never decrease")


class Calibration(Document, frozen=True, kw_only=True):
    """How the probability of one head is corrected after the graph; one of three forms.

    Attributes:
        negative_sampling: share w of negatives kept in training: p / (p + (1 - p) / w).
        platt: slope and intercept of a logistic correction.
        isotonic: a monotone function.
    """

    negative_sampling: Annotated[float, Meta(gt=0, le=1)] | None = None
    platt: tuple[float, float] | None = None
    isotonic: Isotonic | None = None

    def __post_init__(self) -> None:
        check_one_of(self, "negative_sampling", "platt", "isotonic")


class EasyRec(Document, frozen=True, kw_only=True):
    """Names under which PAI-EAS callers know the model.

    Attributes:
        service: in the route; None is the model's name.
        features: our feature -> their name.
    """

    service: Name | None = None
    features: Mapping[Name, Name] = msgspec.field(default_factory=dict)
