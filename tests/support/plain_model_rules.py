"""Which versions are refused for what one of their features says by itself, or a name in them."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np

from plain_graph_rules import graph_refusals
from plain_model_yaml import (
    Document,
    PlainVersion,
    keys_each,
    makes_ids,
    vocabulary,
    width,
)

__all__ = ["refusals"]

_TRANSFORMS: Final = ("hash", "vocabulary", "bucketize", "multi_hash")
_FEATURE_KEYS: Final = frozenset(
    ("name", "side", "type", "default", "shape", "ragged", "weights", "input", *_TRANSFORMS)
)


def refusals(version: PlainVersion) -> list[str]:
    """Why a version is refused; nothing where it can be served."""
    found = [why for feature in version.features for why in _of_feature(feature, version.files)]
    found += _of_names(version)
    return found or graph_refusals(version)  # which needs features that make sense


def _of_feature(feature: Document, files: Mapping[str, bytes]) -> Iterator[str]:
    """What a feature is by itself."""
    kind, ragged, name = feature["type"], feature.get("ragged"), feature["name"]
    unknown = sorted(set(feature) - _FEATURE_KEYS)
    if unknown:
        yield f"{name}: unknown {unknown}"
    if sum(one in feature for one in _TRANSFORMS) > 1:
        yield f"{name}: several transforms"
    if kind == "float32" and any(one in feature for one in ("hash", "vocabulary", "multi_hash")):
        yield f"{name}: float32 has no ids but buckets"
    if kind == "string" and "bucketize" in feature:
        yield f"{name}: buckets of strings"
    if "hash" in feature:
        one = feature["hash"]
        if one["function"] == "farmhash_fingerprint64" and one.get("seed"):
            yield f"{name}: farmhash has no seed"
    if "bucketize" in feature:
        boundaries = feature["bucketize"]["boundaries"]
        if not boundaries or any(low >= high for low, high in pairwise(boundaries)):
            yield f"{name}: boundaries"
    if "multi_hash" in feature:
        yield from _of_multi_hash(feature)
    if "vocabulary" in feature:
        yield from _of_vocabulary(feature, files)
    if feature.get("shape") and (kind != "float32" or ragged):
        yield f"{name}: shape"
    if ragged is not None:
        if "padding" in ragged and "pad_to" not in ragged:
            yield f"{name}: padding without pad_to"
        if ragged.get("pad_to", ragged["max_length"]) < ragged["max_length"]:
            yield f"{name}: pad_to"
        if "pad_to" not in ragged and not makes_ids(feature) and kind == "float32":
            yield f"{name}: a bag of numbers"
        if "multi_hash" in feature:
            yield f"{name}: several keys of each of several values"
    if feature.get("weights") and (ragged is None or "pad_to" in ragged):
        yield f"{name}: weights"
    yield from _of_default(feature)
    into = feature.get("input")
    if isinstance(into, dict):
        begin, end = into["columns"]
        count = keys_each(feature) if "multi_hash" in feature else width(feature)
        if end - begin != count or end <= begin:
            yield f"{name}: columns"
        if "length_column" in into and (ragged is None or begin <= into["length_column"] < end):
            yield f"{name}: length_column"


def _of_multi_hash(feature: Document) -> Iterator[str]:
    several = feature["multi_hash"]
    tables, functions = several["tables"], several.get("functions", [])
    if len(set(tables)) < len(tables):
        yield f"{feature['name']}: a table twice"
    if several["method"] == "hashes":
        if not functions or len(functions) != len(tables):
            yield f"{feature['name']}: functions and tables"
    elif functions or len(tables) != 2 or feature["type"] != "int64":
        yield f"{feature['name']}: quotient_remainder"


def _of_vocabulary(feature: Document, files: Mapping[str, bytes]) -> Iterator[str]:
    name, stated = feature["name"], feature["vocabulary"]
    if ("values" in stated) == ("file" in stated):
        yield f"{name}: list or file"
        return
    if stated.get("file", "") not in ("", *files):
        yield f"{name}: no such file"
        return
    try:
        values = vocabulary(feature, files)
    except ValueError as fault:
        yield f"{name}: file: {fault}"
        return
    wanted = int if feature["type"] == "int64" else str
    if not values or not all(type(one) is wanted for one in values):
        yield f"{name}: values of the wrong type"
    if len(set(map(str, values))) < len(values):
        yield f"{name}: a value twice"
    most = stated.get("first_id", 0) + len(values) - 1
    if most >= 2**63:
        yield f"{name}: beyond 64 bits"


def _of_default(feature: Document) -> Iterator[str]:
    if "default" not in feature:
        return
    name, default, ragged = feature["name"], feature["default"], feature.get("ragged")
    shape = feature.get("shape")
    if isinstance(default, list) != bool(ragged is not None or shape):
        yield f"{name}: default: list or not"
        return
    values = default if isinstance(default, list) else [default]
    types = {"int64": (int,), "float32": (int, float), "string": (str,)}[feature["type"]]
    if not all(type(value) in types for value in values):
        yield f"{name}: default: type"
        return
    if shape and len(values) != math.prod(shape):
        yield f"{name}: default: count"
    if ragged is not None and len(values) > ragged["max_length"]:
        yield f"{name}: default: too long"
    for value in values:
        if feature["type"] == "int64" and not -(2**63) <= value < 2**63:
            yield f"{name}: default: beyond int64"
        if feature["type"] == "float32" and abs(value) > float(np.finfo(np.float32).max):
            yield f"{name}: default: beyond float32"


def _of_names(version: PlainVersion) -> Iterator[str]:
    """Names that the document uses, and sides."""
    ranking = version.document["ranking"]
    features = {feature["name"]: feature for feature in version.features}
    if len(features) < len(version.features):
        yield "a feature twice"
    for what, side in (("id", "candidate"), ("routing_key", "user")):
        if what in ranking:
            one = features.get(ranking[what])
            if one is None or one["side"] != side:
                yield f"ranking.{what}"
            elif one["type"] == "float32" or "ragged" in one:
                yield f"ranking.{what}: one int64 or string"
    if ranking["score"]["output"] not in version.heads:
        yield "ranking.score"
    if "item_table" in ranking and ranking["item_table"] not in version.document["item_tables"]:
        yield "ranking.item_table"
    for lookup in version.lookups:
        if lookup["feature"] not in features:
            yield f"lookups: {lookup['feature']}"
        if lookup["table"] not in version.tables:
            yield f"lookups: no table {lookup['table']}"
        if lookup["output"]["input"] not in version.inputs:
            yield f"lookups: no input {lookup['output']['input']}"
