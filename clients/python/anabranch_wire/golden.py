"""golden/*.json: a ranking request with the keys and scores that the trainer's own code has for it.

A version is served only after the server came to the same ones.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import InvalidInput

__all__ = ["FOLDER", "GoldenRanking", "GoldenRequest", "decode", "encode"]

FOLDER: Final = "golden"

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Rows = tuple[object, ...]
"""One entry a row; see `GoldenRequest`."""

_DEPTH: Final = 2
_KEYS: Final = (int, float, str)


class GoldenRanking(Document, frozen=True, kw_only=True):
    """A ranking request, as it is sent to `:rank`; what says how to answer means nothing here.

    Attributes:
        id: echoed in answers.
        user: feature -> raw value.
        candidates: feature -> raw values, one for each candidate.
        top_k: best candidates to answer.
        outputs: heads to answer.
        explain: whether to explain.
        parameters: of the request.
    """

    id: str = ""
    user: Mapping[Name, object] = msgspec.field(default_factory=dict)
    candidates: Mapping[Name, Rows]
    top_k: Annotated[int, Meta(ge=0)] = 0
    outputs: tuple[Name, ...] = ()
    explain: bool = False
    parameters: Mapping[str, object] = msgspec.field(default_factory=dict)


class GoldenRequest(Document, frozen=True, kw_only=True):
    """One file.

    Attributes:
        request: what is sent.
        keys: feature -> what it becomes, one entry a row; of a user's feature there is one row. A
            row is a number (or a string, where the graph takes strings); a list of them for
            vectors, bags and sequences (a padded sequence with its padding); and where a value has
            several keys, a list of them in the place of each.
        scores: output head -> what is answered for each candidate: a number, or a list of them.
        max_abs_diff: of scores; keys have to be the same.
    """

    request: GoldenRanking
    keys: Mapping[Name, Rows] = msgspec.field(default_factory=dict)
    scores: Mapping[Name, Rows] = msgspec.field(default_factory=dict)
    max_abs_diff: Annotated[float, Meta(ge=0)] = 1e-4

    def __post_init__(self) -> None:
        if not math.isfinite(self.max_abs_diff):
            raise ValueError("max_abs_diff: expected a finite number")
        if not self.keys and not self.scores:
            raise ValueError("expected keys or scores; without any the file proves nothing")
        for feature, rows in self.keys.items():
            for place, value in _leaves(rows, f"keys[{feature!r}]", _DEPTH):
                _check_key(value, place)
        for head, rows in self.scores.items():
            for place, value in _leaves(rows, f"scores[{head!r}]", 1):
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise ValueError(f"{place}: found {_shown(value)}; expected a number")


def decode(data: bytes, name: str) -> GoldenRequest:
    """Read a file.

    Args:
        data: of it.
        name: how messages call it.

    Raises:
        InvalidInput: it is malformed; the message names the file and the place in it.
    """
    return decode_json(data, GoldenRequest, name)


def encode(golden: GoldenRequest, name: str) -> bytes:
    """Write a file.

    Raises:
        InvalidInput: it holds what `decode` would refuse.
    """
    for feature, rows in (*golden.keys.items(), *golden.scores.items()):
        for place, value in _leaves(rows, repr(feature), _DEPTH):
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidInput(f"{name}: {place}: {value} is no finite number")
    return encode_json(golden, name)


def _leaves(rows: object, place: str, depth: int) -> Iterator[tuple[str, object]]:
    """Yield the single values of rows that may be lists, `depth` deep, with their places."""
    if not isinstance(rows, list | tuple):
        yield place, rows
        return
    for at, value in enumerate(rows):
        if depth > 0 and isinstance(value, list | tuple):
            yield from _leaves(value, f"{place}[{at}]", depth - 1)
        else:
            yield f"{place}[{at}]", value


def _check_key(value: object, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, _KEYS):
        raise ValueError(f"{place}: found {_shown(value)}; expected a key or a list of keys")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"{place}: {value}; expected 64 bits")


def _shown(value: object) -> str:
    return "a list" if isinstance(value, list | tuple) else repr(value)[:80]
