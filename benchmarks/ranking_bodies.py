"""Requests of the ranking benchmark in every form that they can be sent in.

All come from one seed. Strings are of the length that such values have: a session of 16 hexadecimal
digits, names of some ten letters; numbers have the four decimals of a feature pipeline.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.ranking import FLOAT32, INT64, Column, RankRequest
from ranking_model import DEVICES, HISTORY, TAGS, WORDS

__all__ = ["Features", "as_json", "as_message", "as_tensors", "make_features"]

Numbers = NDArray[np.int64] | NDArray[np.float32]
Strings = list[str]

_SEED: Final = 30
_SYLLABLES: Final = ("ka", "lo", "mi", "ren", "tas", "ver", "sho", "pri", "ne", "ul")


@dataclass(frozen=True, slots=True)
class Features:
    """Values of one request: numbers with the rows on axis 0, strings, or strings in lists.

    Attributes:
        user: of one row.
        candidates: of all rows.
    """

    user: Mapping[str, Numbers | Strings | list[Strings]]
    candidates: Mapping[str, Numbers | Strings | list[Strings]]


def make_features(number: int, rows: int) -> Features:
    """Return the values of request `number`, the same at every call."""
    random = np.random.default_rng((_SEED, number))

    def whole(most: int, *shape: int) -> NDArray[np.int64]:
        return random.integers(1, most, shape, np.int64)

    def real(*shape: int) -> NDArray[np.float32]:
        return random.random(shape).round(4).astype(np.float32)

    def word(syllables: int) -> str:
        return "".join(random.choice(_SYLLABLES, syllables).tolist())

    def words(count: int, syllables: int) -> Strings:
        return [word(syllables) for _ in range(count)]

    user: dict[str, Numbers | Strings | list[Strings]] = {
        "user_id": whole(10**9, 1),
        "session": [f"{random.integers(2**63):016x}"],
        "country": [word(1)],
        "language": [word(1)],
        "city": [word(4)],
        "device": [str(random.choice(DEVICES))],
        "age": real(1) * np.float32(80),
        "hour": whole(24, 1),
        **{f"rate_{n}": real(1) for n in range(6)},
        "affinity": real(1, 8),
        "history": whole(10**7, 1, HISTORY),
        "query": [words(WORDS, 3)],
        "plan": whole(5, 1),
    }
    names = words(500, 4)
    candidates: dict[str, Numbers | Strings | list[Strings]] = {
        "item_id": whole(10**7, rows),
        "author": whole(10**9, rows),
        "category": random.choice(names, rows).tolist(),
        "brand": random.choice(names, rows).tolist(),
        "price": (real(rows) * np.float32(200)).round(2),
        **{f"score_{n}": real(rows) for n in range(4)},
        "embedding": real(rows, 8),
        "tags": [
            random.choice(names, count).tolist() for count in random.integers(1, TAGS + 1, rows)
        ],
        "slot": whole(20, rows),
    }
    return Features(user, candidates)


def as_json(features: Features) -> bytes:
    """Return the body of `:rank`."""
    return _compact(
        {
            "user": {name: _json_rows(values)[0] for name, values in features.user.items()},
            "candidates": {
                name: _json_rows(values) for name, values in features.candidates.items()
            },
            "top_k": 50,
        }
    )


def as_message(features: Features) -> bytes:
    """Return a serialised RankRequest: numbers raw, strings one by one."""
    request = RankRequest(model_name="ranking", top_k=50)
    for columns, side in ((request.user, features.user), (request.candidates, features.candidates)):
        for name, values in side.items():
            columns[name].CopyFrom(_column(values, is_ragged=name in ("history", "query", "tags")))
    return request.SerializeToString()


def as_tensors(
    arrays: Mapping[str, NDArray[np.generic]], rows: int, *, binary: bool
) -> tuple[bytes, int | None]:
    """Return the body of an infer request that has a row of every input for each candidate.

    Args:
        arrays: input -> its rows, or one row that is repeated.
        rows: candidates.
        binary: whether numbers go behind the JSON, as they are in memory.

    Returns:
        The body, and the length of the JSON at its front where not all of it is JSON.
    """
    inputs: list[dict[str, object]] = []
    parts: list[bytes] = []
    for name, array in arrays.items():
        full = np.ascontiguousarray(np.broadcast_to(array, (rows, *array.shape[1:])))
        tensor: dict[str, object] = {
            "name": name,
            "datatype": "INT64" if full.dtype == np.int64 else "FP32",
            "shape": list(full.shape),
        }
        if binary:
            tensor["parameters"] = {"binary_data_size": full.nbytes}
            parts.append(full.tobytes())
        else:
            tensor["data"] = _json_rows(full.ravel())
        inputs.append(tensor)
    head = _compact({"inputs": inputs})
    return b"".join((head, *parts)), len(head) if binary else None


def _column(values: Numbers | Strings | list[Strings], *, is_ragged: bool) -> Column:
    if isinstance(values, np.ndarray):
        column = Column(type=INT64 if values.dtype == np.int64 else FLOAT32, raw=values.tobytes())
        lengths = [values.shape[-1]] * (values.size // values.shape[-1])
    else:
        bags = [row if isinstance(row, list) else [row] for row in values]
        column = Column(strings=[value.encode() for bag in bags for value in bag])
        lengths = [len(bag) for bag in bags]
    if is_ragged:
        column.lengths = np.array(lengths, "<u4").tobytes()
    return column


def _json_rows(values: NDArray[np.generic] | Strings | list[Strings]) -> list[object]:
    """Rows in the shortest text that reads as the same float32."""
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.dtype == np.int64:
        whole: list[object] = values.tolist()
        return whole
    real = [float(str(value)) for value in values.ravel()]
    if values.ndim == 1:
        return list(real)
    width = values.shape[1]
    return [real[at : at + width] for at in range(0, len(real), width)]


def _compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
