"""What ranking requests of a plain version come to: keys, inputs of the graph, faults."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from plain_features import Column, Row, Value
from plain_model_yaml import (
    HOLDS,
    Claim,
    PlainVersion,
    claims,
    keys_each,
    keys_of,
    looked_up,
    makes_ids,
    vocabulary,
)

__all__ = ["PlainAnswer", "PlainRefused", "plain_answer", "plain_graph"]

Array = NDArray[Any]

_TYPES: Final = {
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}


class PlainRefused(Exception):
    """The request is refused; its text is how the message begins."""


class _RowFault(Exception):
    """A row is at fault."""


@dataclass
class _Made:
    """One row: for each key of a value what it became; and weights."""

    lists: list[list[Value]]
    weights: list[float]
    truncated: int = 0
    unknown: int = 0
    endless: int = 0


@dataclass
class PlainAnswer:
    """What features came to.

    Attributes:
        rows: candidates.
        arrays: by the names that requests have: inputs that features fill, and keys.
        counts: of each feature: values, defaulted, out of vocabulary, truncated, out of range.
        bad: position -> how its message begins.
        missed: positions whose id the item table lacks.
    """

    rows: int
    arrays: dict[str, Array] = field(default_factory=dict)
    counts: list[list[int]] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    missed: list[int] = field(default_factory=list)


def plain_answer(version: PlainVersion, sent: Mapping[str, Column]) -> PlainAnswer:
    """Read a request.

    Args:
        version: that is served.
        sent: feature -> rows, a user's one; without those that are left out.

    Raises:
        PlainRefused: it is refused.
    """
    ranking = version.document["ranking"]
    id_name = ranking["id"]
    if id_name not in sent:
        raise PlainRefused(f"feature {id_name!r}: expected the ids")
    columns = dict(sent)
    missed = _complete(version, columns, id_name)
    filled = set(columns) - set(sent)
    of_candidates = [
        one["name"]
        for one in version.features
        if one["side"] == "candidate" and one["name"] in columns
    ]
    answer = PlainAnswer(len(columns[of_candidates[0]]), missed=missed)
    made: dict[str, list[_Made]] = {}
    faults: list[tuple[str, int | None]] = []
    for feature in version.features:
        name = feature["name"]
        expected = 1 if feature["side"] == "user" else answer.rows
        column = columns.get(name, [None] * expected)
        if (name not in columns and "default" not in feature) or len(column) != expected:
            faults.append((name, None))
            column = [None] * expected
        found, at_fault, counts = _feature(version, feature, column)
        made[name] = found
        if (name, None) not in faults:
            faults += [(name, row) for row in at_fault]
        answer.counts.append(counts)
    wrong_ids = {row for name, row in faults if name == id_name}
    for name, row in faults:
        if name in filled and row in wrong_ids:
            continue  # the id is to blame
        is_user = next(one for one in version.features if one["name"] == name)["side"] == "user"
        if row is None or is_user:
            raise PlainRefused(f"feature {name!r}: ")
        text = f"feature {name!r}, candidate {row}: "
        if ranking.get("on_bad_candidate", "error") == "error":
            raise PlainRefused(text)
        answer.bad.setdefault(row, text)
    _arrays(version, made, answer)
    return answer


def _complete(version: PlainVersion, columns: dict[str, Column], id_name: str) -> list[int]:
    """Add what the item table has; return positions whose id it lacks."""
    items, ranking = version.items, version.document["ranking"]
    if items is None or "item_table" not in ranking:
        return []
    stated = version.document["item_tables"]["items"]["columns"]
    left_out = [name for name in stated if name not in columns]
    ids = [None if row is None else row.values[0] for row in columns[id_name]]
    for name in left_out:
        values = items.columns[stated[name]]
        found = [values[items.ids.index(one)] if one in items.ids else None for one in ids]
        columns[name] = [
            None if one is None else Row(tuple(one) if isinstance(one, list) else (one,))
            for one in found
        ]
    if not left_out:
        return []
    return [row for row, one in enumerate(ids) if one is not None and one not in items.ids]


def _feature(
    version: PlainVersion, feature: Mapping[str, Any], column: Column
) -> tuple[list[_Made], list[int], list[int]]:
    """Make the rows of a feature; return them, which are at fault, and what was counted."""
    counts = [0] * 5
    made: list[_Made] = []
    at_fault: list[int] = []
    default = None
    if "default" in feature:
        stated = feature["default"]
        values = tuple(stated) if isinstance(stated, list) else (stated,)
        default = _row(version, feature, Row(values))
    for place, row in enumerate(column):
        one = default
        if row is None and default is not None:
            counts[1] += 1
        elif row is not None:
            try:
                one = _row(version, feature, row)
            except _RowFault:
                at_fault.append(place)
                made.append(default or _zeros(feature))
                continue
        if one is None:
            at_fault.append(place)
            made.append(_zeros(feature))
            continue
        made.append(one)
        counts[0] += len(one.weights)
        counts[2] += one.unknown
        counts[3] += one.truncated
        counts[4] += one.endless
    return made, at_fault, counts


def _zeros(feature: Mapping[str, Any]) -> _Made:
    count = 0 if "ragged" in feature else math.prod(feature.get("shape", ()))
    is_text = feature["type"] == "string" and not makes_ids(feature)
    zero: Value = "" if is_text else 0
    return _Made([[zero] * count for _ in range(keys_each(feature))], [1.0] * count)


def _row(version: PlainVersion, feature: Mapping[str, Any], row: Row) -> _Made:
    values = list(row.values)
    weights = list(row.weights) if row.weights is not None else [1.0] * len(values)
    over = 0
    if "ragged" in feature:
        most, keep = feature["ragged"]["max_length"], feature["ragged"].get("keep", "error")
        over = max(0, len(values) - most)
        if over and keep == "error":
            raise _RowFault
        if over:
            kept = slice(0, most) if keep == "first" else slice(over, None)
            values, weights = values[kept], weights[kept]
    made = _Made([[] for _ in range(keys_each(feature))], weights, over)
    into = {
        claim.key: version.inputs[claim.input].datatype
        for claim in claims(version, feature)
        if claim.kind != "lengths"
    }
    for value in values:
        try:
            keys = keys_of(feature, value, version.files)
        except KeyError:
            raise _RowFault from None
        if "vocabulary" in feature and value not in vocabulary(feature, version.files):
            made.unknown += 1
        if isinstance(value, float) and not math.isfinite(value):
            made.endless += 1
        for key, one in enumerate(keys):
            made.lists[key].append(one)
            if key in into and not _holds(into[key], one):
                raise _RowFault
    return made


def _holds(datatype: str, one: Value) -> bool:
    if isinstance(one, int):
        low, high = HOLDS[datatype]
        return low <= one <= high
    if isinstance(one, float) and datatype == "FP16":
        return not 65520 <= abs(one) < math.inf
    return True


def _arrays(
    version: PlainVersion, made: Mapping[str, Sequence[_Made]], answer: PlainAnswer
) -> None:
    """Fill the inputs that features fill, and list the keys of those that lookups read."""
    features = {feature["name"]: feature for feature in version.features}
    own = [claim for feature in version.features for claim in claims(version, feature)]
    for name, spec in version.inputs.items():
        here = [claim for claim in own if claim.input == name]
        if not here:
            continue
        columns = max((claim.column or 0) + math.prod(claim.shape) for claim in here)
        shape: tuple[int, ...] = (columns,)
        if here[0].column is None:
            shape = here[0].shape if len(here[0].shape) > 1 else (columns,)
            shape = shape if len(spec.shape) > 1 else ()
        rows = 1 if name in version.users else answer.rows
        cells = np.zeros((rows, columns), _TYPES[spec.datatype])
        for claim in here:
            feature = features[claim.feature]
            for row in range(rows):
                one = made[claim.feature][0 if feature["side"] == "user" else row]
                for offset, value in enumerate(_cells(claim, feature, one)):
                    cells[row, (claim.column or 0) + offset] = value
        answer.arrays[name] = cells.reshape((rows, *shape))
    for name, feature in features.items():
        if not looked_up(version, name):
            continue
        tables = feature["multi_hash"]["tables"] if "multi_hash" in feature else [None]
        for key, table in enumerate(tables):
            called = name if table is None else f"{name}.{table}"
            flat = [value for one in made[name] for value in one.lists[key]]
            answer.arrays[called] = np.array(flat, np.int64)
            if "ragged" in feature:
                lengths = [len(one.lists[0]) for one in made[name]]
                answer.arrays[f"{called}.lengths"] = np.array(lengths, np.int64)
            if feature.get("weights"):
                weights = [weight for one in made[name] for weight in one.weights]
                answer.arrays[f"{called}.weights"] = np.array(weights, np.float32)


def _cells(claim: Claim, feature: Mapping[str, Any], made: _Made) -> list[Value | bytes]:
    if claim.kind == "lengths":
        return [len(made.lists[0])]
    values: list[Value] = list(made.lists[claim.key])
    if "ragged" in feature:
        padding = feature["ragged"].get("padding", 0)
        values += [padding] * (feature["ragged"]["pad_to"] - len(values))
    return [value.encode() if isinstance(value, str) else value for value in values]


def plain_graph(version: PlainVersion, answer: PlainAnswer) -> dict[str, Array]:
    """The inputs of the graph: those of an answer for every row, and what is looked up.

    Raises:
        PlainRefused: a key has no row where it must have one.
    """
    features = {feature["name"]: feature for feature in version.features}
    inputs = {
        name: np.repeat(array, answer.rows, 0) if len(array) == 1 else array
        for name, array in answer.arrays.items()
        if name in version.inputs
    }
    buffers: dict[str, dict[int, Array]] = {}
    joined: dict[tuple[str, int], Array] = {}
    for lookup in version.lookups:
        feature = features[lookup["feature"]]
        into, (begin, end) = lookup["output"]["input"], lookup["output"]["columns"]
        rows = _looked_up(version, feature, lookup, answer, end - begin)
        several = feature.get("multi_hash")
        if several is not None and several["combine"] != "concat" and (into, begin) in joined:
            before = joined[into, begin]
            rows = before + rows if several["combine"] == "sum" else before * rows
        joined[into, begin] = rows
        buffers.setdefault(into, {})[begin] = rows
    for into, parts in buffers.items():
        wide = np.concatenate([part for _, part in sorted(parts.items())], 1)
        inputs[into] = wide.astype(_TYPES[version.inputs[into].datatype])
    return inputs


def _looked_up(
    version: PlainVersion,
    feature: Mapping[str, Any],
    lookup: Mapping[str, Any],
    answer: PlainAnswer,
    columns: int,
) -> Array:
    called = feature["name"]
    if "multi_hash" in feature:
        called = f"{called}.{lookup['table']}"
    keys = answer.arrays[called].tolist()
    count = 1 if feature["side"] == "user" else answer.rows
    lengths = [1] * count
    if "ragged" in feature:
        lengths = answer.arrays[f"{called}.lengths"].tolist()
    weights = [1.0] * len(keys)
    if feature.get("weights"):
        weights = answer.arrays[f"{called}.weights"].tolist()
    made: list[list[float]] = []
    at = 0
    for length in lengths:
        bag = [_of_key(version, lookup["table"], key) for key in keys[at : at + length]]
        made.append(_pooled(bag, weights[at : at + length], lookup, columns))
        at += length
    array = np.array(made, np.float32).reshape(count, columns)
    return np.repeat(array, answer.rows, 0) if feature["side"] == "user" else array


def _of_key(version: PlainVersion, name: str, key: int) -> tuple[float, ...] | None:
    """The row of a key; None where it is padding."""
    table = version.tables[name]
    meaning = version.document.get("tables", {}).get(name, {})
    if meaning.get("padding_key") == key:
        return None
    missing, dim = meaning.get("missing", "zeros"), len(table.rows[0])
    row = table.row(key)
    if row is not None:
        return row
    if missing == "original" and -len(table.rows) <= key < 0:
        return table.rows[key]
    if missing in ("original", "error"):
        raise PlainRefused("feature ")
    if isinstance(missing, dict) and missing["policy"] == "vector":
        return tuple(missing["value"])
    if isinstance(missing, dict):
        return table.row(missing["key"]) or (0.0,) * dim
    return (0.0,) * dim


def _pooled(
    bag: Sequence[tuple[float, ...] | None],
    weights: Sequence[float],
    lookup: Mapping[str, Any],
    columns: int,
) -> list[float]:
    combiner = lookup.get("combiner", "none")
    if combiner == "none":
        cells = [0.0] * columns
        for at, row in enumerate(bag):
            if row is not None:
                cells[at * len(row) : (at + 1) * len(row)] = row
        return cells
    there = [(row, weight) for row, weight in zip(bag, weights, strict=True) if row is not None]
    if not there:
        return [0.0] * columns
    if combiner == "max":
        return [max(row[column] for row, _ in there) for column in range(columns)]
    sums = [sum(row[column] * weight for row, weight in there) for column in range(columns)]
    divisor = 1.0
    if combiner == "mean":
        divisor = sum(weight for _, weight in there)
    if combiner == "sqrtn":
        divisor = math.sqrt(sum(weight * weight for _, weight in there))
    return [one / divisor if divisor else 0.0 for one in sums]
