"""Limits of a ranking request that hold for every door, and how they are told."""

from typing import Final

from anabranch_runtime.ranking.requests import RankRequest
from anabranch_server.limits import Limits
from anabranch_wire.errors import TooLarge

__all__ = ["MAX_TOP_K", "check_sizes", "too_many_features", "too_many_outputs"]

MAX_TOP_K: Final = 2**32 - 1


def check_sizes(request: RankRequest, limits: Limits) -> None:
    """Return if a request keeps the limits that concern what stands beside its columns.

    Raises:
        TooLarge: it has too many features or outputs, or too long a string.
    """
    if len(request.user) + len(request.candidates) > limits.max_tensors:
        raise too_many_features(limits)
    if len(request.outputs) > limits.max_tensors:
        raise too_many_outputs(limits)
    _check_text("id", request.id, limits)
    if isinstance(request.routing_key, str):
        _check_text("routing_key", request.routing_key, limits)


def too_many_features(limits: Limits) -> TooLarge:
    """Return the fault of a request with more features than it may have."""
    return TooLarge(f"too many features: at most {limits.max_tensors} are allowed")


def too_many_outputs(limits: Limits) -> TooLarge:
    """Return the fault of a request with more outputs than it may have."""
    return TooLarge(f"too many outputs: at most {limits.max_tensors} are allowed")


def _check_text(what: str, text: str, limits: Limits) -> None:
    most = limits.max_string_bytes
    if len(text) > most or (4 * len(text) > most and len(text.encode()) > most):
        raise TooLarge(f"{what}: at most {most} bytes are allowed")
