"""Versions that rank, in plain Python: what features of a model.yaml make, and where it goes.

A slow reading of the pages about features and lookups that starts from the document itself and
knows nothing of plans. Hashes are those of the reference packages.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from plain_features import Value, plain_hash

__all__ = [
    "HOLDS",
    "Claim",
    "Document",
    "GraphInput",
    "PlainItems",
    "PlainTable",
    "PlainVersion",
    "claims",
    "keys_each",
    "keys_of",
    "looked_up",
    "makes_ids",
    "vocabulary",
    "width",
]

Document = Mapping[str, Any]

HOLDS: Final = {
    "INT32": (-(2**31), 2**31 - 1),
    "INT64": (-(2**63), 2**63 - 1),
    "FP16": (-(2**11), 2**11),
    "FP32": (-(2**24), 2**24),
    "FP64": (-(2**53), 2**53),
}
_TRANSFORMS: Final = ("hash", "vocabulary", "bucketize", "multi_hash")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")


@dataclass(frozen=True)
class GraphInput:
    """An input of the graph; axis 0 is -1 where it counts rows."""

    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PlainTable:
    """Rows of a table; its keys are their numbers where `keys` is None."""

    keys: tuple[int, ...] | None
    rows: tuple[tuple[float, ...], ...]

    def row(self, key: int) -> tuple[float, ...] | None:
        """The row of a key."""
        keys: Sequence[int] = range(len(self.rows)) if self.keys is None else self.keys
        return self.rows[keys.index(key)] if key in keys else None


@dataclass(frozen=True)
class PlainItems:
    """An item table: columns by name, with the type of each: `int64`, `list<string>`, ..."""

    ids: Sequence[object]
    columns: Mapping[str, Sequence[Any]]
    types: Mapping[str, str]


@dataclass
class PlainVersion:
    """A version: model.yaml as data, the graph's inputs, and its other files."""

    document: dict[str, Any]
    inputs: dict[str, GraphInput]
    files: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, PlainTable] = field(default_factory=dict)
    items: PlainItems | None = None
    heads: tuple[str, ...] = ("score",)

    @property
    def features(self) -> list[dict[str, Any]]:
        """Features of the document."""
        found: list[dict[str, Any]] = self.document["features"]
        return found

    @property
    def lookups(self) -> list[dict[str, Any]]:
        """Lookups of the document."""
        found: list[dict[str, Any]] = self.document.get("lookups", [])
        return found

    @property
    def users(self) -> list[str]:
        """Graph inputs, or features that are looked up, which hold a user once."""
        listed = self.document.get("user_inputs", "none")
        return listed if isinstance(listed, list) else []


@dataclass(frozen=True)
class Claim:
    """Where some values of a feature go; `column` is None where they take all of the input."""

    feature: str
    kind: str
    key: int
    input: str
    shape: tuple[int, ...]
    column: int | None


def keys_each(feature: Document) -> int:
    """How many keys a value has."""
    return len(feature["multi_hash"]["tables"]) if "multi_hash" in feature else 1


def makes_ids(feature: Document) -> bool:
    """Whether integers come of a feature."""
    return feature["type"] == "int64" or any(one in feature for one in _TRANSFORMS)


def width(feature: Document) -> int:
    """Columns that each key of a feature fills."""
    if "ragged" in feature:
        return int(feature["ragged"].get("pad_to", 0))
    return math.prod(feature.get("shape", ()))


def looked_up(version: PlainVersion, name: str) -> bool:
    """Whether lookups read a feature."""
    return any(lookup["feature"] == name for lookup in version.lookups)


def vocabulary(feature: Document, files: Mapping[str, bytes]) -> list[Value]:
    """The values of a vocabulary; a ValueError where its file is at fault."""
    stated = feature["vocabulary"]
    if "file" not in stated:
        return list(stated["values"])
    lines = files[stated["file"]].decode().split("\n")
    if not lines[-1]:
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    if not lines or len(set(lines)) < len(lines):
        raise ValueError("none, or one twice")
    if feature["type"] == "string":
        return list(lines)
    if not all(_INTEGER.fullmatch(line) for line in lines):
        raise ValueError("no integer")
    return [int(line) for line in lines]


def keys_of(feature: Document, value: Value, files: Mapping[str, bytes]) -> tuple[Value, ...]:
    """The keys of a raw value; a KeyError where its vocabulary lacks it."""
    if "hash" in feature:
        one = feature["hash"]
        assert not isinstance(value, float)
        return (plain_hash(one["function"], one.get("seed", 0), one["num_buckets"], value),)
    if "multi_hash" in feature:
        several = feature["multi_hash"]
        buckets = several["num_buckets"]
        assert not isinstance(value, float)
        if several["method"] == "quotient_remainder":
            return (int(value) // buckets, int(value) % buckets)
        seed = several.get("seed", 0)
        return tuple(plain_hash(one, seed, buckets, value) for one in several["functions"])
    if "bucketize" in feature:
        boundaries = feature["bucketize"]["boundaries"]
        assert not isinstance(value, str)
        if feature["type"] == "float32":
            boundaries = [float(np.float32(boundary)) for boundary in boundaries]
        return (sum(value != value or boundary <= value for boundary in boundaries),)
    if "vocabulary" in feature:
        values, stated = vocabulary(feature, files), feature["vocabulary"]
        if value in values:
            return (stated.get("first_id", 0) + values.index(value),)
        if stated.get("unknown", "error") == "error":
            raise KeyError(value)
        return (int(stated["unknown"]),)
    return (float(np.float32(value)) if feature["type"] == "float32" else value,)


def claims(version: PlainVersion, feature: Document) -> Iterator[Claim]:
    """Where a feature goes in the graph, but for its keys that lookups read."""
    name, ragged, into = feature["name"], feature.get("ragged", {}), feature.get("input")
    if "lengths_input" in ragged:
        yield Claim(name, "lengths", 0, ragged["lengths_input"], (), None)
    if looked_up(version, name):
        return
    ranking = version.document["ranking"]
    idle = name in (ranking["id"], ranking.get("routing_key"))
    if idle and into is None and name not in version.inputs:
        return
    kind = "numbers" if feature["type"] == "float32" else "strings"
    kind = "ids" if makes_ids(feature) else kind
    shape = (ragged["pad_to"],) if "pad_to" in ragged else tuple(feature.get("shape", ()))
    several = feature["multi_hash"]["tables"] if "multi_hash" in feature else None
    if isinstance(into, dict):
        if "length_column" in into:
            yield Claim(name, "lengths", 0, into["name"], (), into["length_column"])
        begin, end = into["columns"]
        if several is None:
            yield Claim(name, kind, 0, into["name"], (end - begin,), begin)
        for key in range(len(several or ())):
            yield Claim(name, kind, key, into["name"], (), begin + key)
    elif several is None:
        yield Claim(name, kind, 0, into or name, shape, None)
    else:
        for key, table in enumerate(several):
            yield Claim(name, kind, key, into or table, (), None if into is None else key)
