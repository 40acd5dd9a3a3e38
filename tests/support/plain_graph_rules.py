"""Which versions are refused since features, lookups, items and the graph do not fit together."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from plain_model_yaml import (
    HOLDS,
    Claim,
    Document,
    PlainVersion,
    claims,
    keys_of,
    looked_up,
    makes_ids,
    vocabulary,
)

__all__ = ["graph_refusals"]

_FLOATS: Final = ("FP16", "FP32", "FP64")


def graph_refusals(version: PlainVersion) -> list[str]:
    """Why a version is refused whose features are in order, each by itself."""
    found = [*_of_ranking(version), *_of_lookups(version)]
    return found or [*_of_graph(version), *_of_items(version)]


def _of_ranking(version: PlainVersion) -> Iterator[str]:
    """Who writes where, and what a feature makes for it."""
    users = set(version.users)
    written = Counter[tuple[str, int | None]]()
    whole: set[str] = set()
    shared: set[str] = set()
    into_graph = False
    for feature in version.features:
        name = feature["name"]
        own = list(claims(version, feature))
        into_graph |= feature["side"] == "candidate" and (
            looked_up(version, name) or any(claim.kind != "lengths" for claim in own)
        )
        for claim in own:
            columns = range(max(1, math.prod(claim.shape)))
            if claim.column is None:
                written[claim.input, None] += 1
                whole.add(claim.input)
            else:
                shared.add(claim.input)
                for column in columns:
                    written[claim.input, claim.column + column] += 1
            if claim.input not in version.inputs:
                yield f"{name}: no input {claim.input}"
            if claim.input in {lookup["output"]["input"] for lookup in version.lookups}:
                yield f"{name}: {claim.input} is filled by lookups"
        fed = {claim.input for claim in own} | ({name} if looked_up(version, name) else set())
        if feature["side"] == "candidate" and fed & users:
            yield f"{name}: a candidate's in an input of the user"
    if whole & shared or any(count > 1 for count in written.values()):
        yield "two write to one place"
    if not into_graph:
        yield "nothing of candidates goes into the graph"
    for name in users:
        if name not in version.inputs and not looked_up(version, name):
            yield f"user_inputs: {name}"
        elif name in version.inputs and version.inputs[name].shape[:1] != (-1,):
            yield f"user_inputs: {name} has no rows"


def _of_lookups(version: PlainVersion) -> Iterator[str]:
    """Lookups, tables and the inputs that they fill."""
    features = {feature["name"]: feature for feature in version.features}
    spans: dict[str, set[tuple[int, int, str]]] = {}
    for lookup in version.lookups:
        feature, table = features[lookup["feature"]], version.tables[lookup["table"]]
        name, combiner = feature["name"], lookup.get("combiner", "none")
        into, (begin, end) = lookup["output"]["input"], lookup["output"]["columns"]
        several = feature.get("multi_hash")
        owner = f"{name}:{begin}:{end}"
        if several is None or several["combine"] == "concat":
            owner += f":{lookup['table']}:{combiner}:{id(lookup)}"
        spans.setdefault(into, set()).add((begin, end, owner))
        ragged = feature.get("ragged", {})
        length = ragged.get("pad_to", ragged.get("max_length", 1)) if combiner == "none" else 1
        if end - begin != length * len(table.rows[0]):
            yield f"{name}: columns of a lookup"
        if feature.get("weights") and combiner in ("none", "max"):
            yield f"{name}: weights and {combiner}"
        if not makes_ids(feature):
            yield f"{name}: no keys"
        if "input" in feature:
            yield f"{name}: looked up, and has an input"
        if name in version.inputs:
            yield f"{name}: a name of the graph"
        if several is not None:
            own = [one for one in version.lookups if one["feature"] == name]
            if sorted(one["table"] for one in own) != sorted(several["tables"]):
                yield f"{name}: tables of lookups"
            places = {str(one["output"]) for one in own}
            if several["combine"] != "concat" and len(places) > 1:
                yield f"{name}: places of combined rows"
        meaning = version.document.get("tables", {}).get(lookup["table"], {})
        missing = meaning.get("missing")
        if missing == "original" and table.keys is not None:
            yield f"{lookup['table']}: original of a hashed table"
        if isinstance(missing, dict) and len(missing.get("value", table.rows[0])) != len(
            table.rows[0]
        ):
            yield f"{lookup['table']}: length of the vector"
    for into, written in spans.items():
        spec = version.inputs[into]
        if spec.datatype not in ("FP32", "FP16") or len(spec.shape) != 2 or spec.shape[0] != -1:
            yield f"{into}: no buffer"
            continue
        columns = [column for begin, end, _ in written for column in range(begin, end)]
        most = max(columns) + 1 if spec.shape[1] == -1 else spec.shape[1]
        if sorted(columns) != list(range(most)):
            yield f"{into}: columns are not filled once"


def _of_graph(version: PlainVersion) -> Iterator[str]:
    """Whether features fill the graph, and it holds what they make."""
    filled = {lookup["output"]["input"] for lookup in version.lookups}
    features = {feature["name"]: feature for feature in version.features}
    own = [claim for feature in version.features for claim in claims(version, feature)]
    for name, spec in version.inputs.items():
        if name in filled:
            continue
        if spec.shape[:1] != (-1,):
            yield f"{name}: no rows"
            continue
        here = [claim for claim in own if claim.input == name]
        if not here:
            yield f"{name}: nothing fills it"
            continue
        if here[0].column is None:
            if not _fits(spec.shape[1:], here[0].shape):
                yield f"{name}: shape"
        else:
            columns = [
                claim.column + offset
                for claim in here
                if claim.column is not None
                for offset in range(math.prod(claim.shape))
            ]
            if len(spec.shape) != 2 or sorted(columns) != list(
                range(max(columns) + 1 if spec.shape[1] == -1 else spec.shape[1])
            ):
                yield f"{name}: columns"
        for claim in here:
            yield from _of_claim(claim, features[claim.feature], spec.datatype, version.files)
    for feature in version.features:
        yield from _of_default_ids(version, feature)


def _fits(declared: Sequence[int], wanted: Sequence[int]) -> bool:
    if len(declared) <= 1 and all(size in (-1, 1) for size in declared) and wanted in ((), (1,)):
        return True
    return len(declared) == len(wanted) and all(
        size in (-1, one) for size, one in zip(declared, wanted, strict=True)
    )


def _of_claim(
    claim: Claim, feature: Document, datatype: str, files: Mapping[str, bytes]
) -> Iterator[str]:
    name, ragged = feature["name"], feature.get("ragged")
    allowed = {"ids": tuple(HOLDS), "lengths": tuple(HOLDS), "numbers": _FLOATS}
    if datatype not in allowed.get(claim.kind, ("BYTES",)):
        yield f"{name}: {claim.kind} in {datatype}"
        return
    if claim.kind == "strings":
        if ragged is not None:
            yield f"{name}: a sequence of strings"
        return
    if claim.kind == "lengths":
        if ragged is not None and ragged["max_length"] > HOLDS[datatype][1]:
            yield f"{name}: lengths"
        return
    if ragged is not None:
        if "pad_to" not in ragged:
            yield f"{name}: a bag that nothing reads"
        padding = ragged.get("padding", 0)
        most = min(2**53, HOLDS[datatype][1])
        if claim.kind == "ids" and (padding != math.floor(padding) or abs(padding) > most):
            yield f"{name}: padding"
    if claim.kind == "ids":
        low, high = HOLDS[datatype]
        if not all(low <= one <= high for one in _extremes(feature, claim.key, files)):
            yield f"{name}: ids beyond {datatype}"


def _extremes(feature: Document, key: int, files: Mapping[str, bytes]) -> list[int]:
    """The least and greatest ids that a transform makes."""
    if "bucketize" in feature:
        return [len(feature["bucketize"]["boundaries"])]
    if "vocabulary" in feature:
        first = feature["vocabulary"].get("first_id", 0)
        unknown = feature["vocabulary"].get("unknown", "error")
        last = first + len(vocabulary(feature, files)) - 1
        return [first, last, *([] if unknown == "error" else [unknown])]
    hashed = feature.get("hash", feature.get("multi_hash"))
    if hashed is None or (hashed.get("method") == "quotient_remainder" and key == 0):
        return []
    return [hashed["num_buckets"] - 1] if hashed["num_buckets"] else [-(2**63), 2**63 - 1]


def _of_default_ids(version: PlainVersion, feature: Document) -> Iterator[str]:
    """Whether a default can stand in."""
    if "default" not in feature:
        return
    stated = feature["default"]
    into = {claim.key: claim.input for claim in claims(version, feature) if claim.kind != "lengths"}
    for value in stated if isinstance(stated, list) else [stated]:
        try:
            keys = keys_of(feature, value, version.files)
        except KeyError:
            yield f"{feature['name']}: default is not in the vocabulary"
            continue
        for key, one in enumerate(keys):
            if key not in into:
                continue
            datatype = version.inputs[into[key]].datatype
            if datatype == "BYTES":
                continue  # refused for its kind already, unless it is a string
            if isinstance(one, int) and not HOLDS[datatype][0] <= one <= HOLDS[datatype][1]:
                yield f"{feature['name']}: default beyond {datatype}"
            if isinstance(one, float) and datatype == "FP16" and 65520 <= abs(one) < math.inf:
                yield f"{feature['name']}: default beyond FP16"


def _of_items(version: PlainVersion) -> Iterator[str]:
    """Whether the columns of the item table can be what callers would send."""
    ranking, items = version.document["ranking"], version.items
    if "item_table" not in ranking:
        return
    stated = version.document["item_tables"][ranking["item_table"]]
    features = {feature["name"]: feature for feature in version.features}
    if items is None or stated["file"] != "items/0000.parquet" or stated["key"] != "id":
        yield "item table: file or key"
        return
    key = features[ranking["id"]]["type"]
    if items.types["id"] != key:
        yield "item table: ids"
    for name, column in stated["columns"].items():
        feature = features.get(name)
        if feature is None or feature["side"] != "candidate" or name == ranking["id"]:
            yield f"item table: feature {name}"
            continue
        kind = feature["type"]
        if "ragged" in feature and feature.get("weights"):
            kind = f"weighted<{kind}>"
        elif "ragged" in feature or math.prod(feature.get("shape", ())) > 1:
            kind = f"list<{kind}>"
        found = items.types.get(column)
        numbers = (kind.replace("float32", "int64"), kind)
        if found not in (numbers if kind in ("float32", "list<float32>") else (kind,)):
            yield f"item table: {column} for {name}"
