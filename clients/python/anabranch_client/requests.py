"""Arguments of a client's methods become calls, whichever protocol carries them."""

import itertools
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_client.calls import Call
from anabranch_client.infer_bodies import Scores
from anabranch_client.rank_options import RankOptions
from anabranch_client.rankings import Ranking
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

__all__ = ["ModelMetadata", "RequestIds", "Requests", "Target", "checked_timeout", "target"]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model takes and gives.

    Attributes:
        name: of the model.
        versions: the loaded ones, as text.
        platform: what runs it.
        inputs: in the model's order; -1 in a shape varies from request to request.
        outputs: likewise.
    """

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What a call asks.

    Attributes:
        model: its name.
        version: number or label; empty where the server chooses.
        request_id: under which the server knows the call, however often it is sent.
        told: whether the server is told how long the answer is of use.
    """

    model: str
    version: str
    request_id: str
    told: bool


class RequestIds:
    """Makes request ids. Any thread may use it."""

    def __init__(self) -> None:
        self._prefix: Final = secrets.token_hex(8)
        self._numbers: Final = itertools.count(1)

    def request_id(self) -> str:
        """Return an id that nobody else has."""
        return f"{self._prefix}-{next(self._numbers):x}"


class Requests(Protocol):
    """Makes calls of one protocol. Stateless."""

    def score(
        self,
        target: Target,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[str] | None,
    ) -> Call[Scores]:
        """Return a scoring call."""
        ...

    def rank(
        self, target: Target, user: object, candidates: object, options: RankOptions
    ) -> Call[Ranking]:
        """Return a ranking call."""
        ...

    def metadata(self, target: Target) -> Call[ModelMetadata]:
        """Return a call that asks what a model takes and gives."""
        ...

    def ready(self, request_id: str) -> Call[bool]:
        """Return a call that asks whether a server can answer."""
        ...


def target(model: str, version: str | int, request_id: str, timeout_s: float | None) -> Target:
    """Return what arguments ask for.

    Raises:
        InvalidInput: one is of another type.
    """
    if not isinstance(model, str):
        raise InvalidInput(f"model: expected a name, got {type(model).__name__}")
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise InvalidInput(f"version: expected a number or label, got {type(version).__name__}")
    return Target(model, str(version), request_id, timeout_s is not None)


def checked_timeout(timeout_s: float | None, most_s: float) -> float:
    """Return how long a call may take.

    Raises:
        InvalidInput: it is no number.
    """
    if timeout_s is None:
        return most_s
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float | np.number):
        raise InvalidInput(f"timeout_s: expected a number of seconds or None, got {timeout_s!r}")
    if not math.isfinite(timeout_s):
        raise InvalidInput(f"timeout_s: expected a number of seconds or None, got {timeout_s}")
    return float(timeout_s)
