"""Hypothesis strategies of ranking requests for plain versions; bodies of both doors for them."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from anabranch_wire.ranking import FLOAT32, INT64, RankRequest
from drawn_values import raw_values
from plain_features import Column, Row, Value
from plain_model_yaml import PlainVersion

__all__ = ["json_body", "message_body", "rank_requests"]


@st.composite
def rank_requests(draw: st.DrawFn, version: PlainVersion) -> dict[str, Column]:
    """Feature -> rows of what one request sends; features may be left out, rows be null."""
    rows = draw(st.sampled_from([1, 2, 3, 4, 5, 0]))
    may_miss, nulls = draw(st.booleans()), draw(st.booleans())
    wrong = draw(st.integers(0, 7)) == 0
    sent: dict[str, Column] = {}
    for feature in version.features:
        name = feature["name"]
        is_id = name == version.document["ranking"]["id"]
        optional = "default" in feature or wrong
        if may_miss and draw(st.integers(0, 11 if is_id else 1)) == 0 and optional:
            continue
        count = 1 if feature["side"] == "user" else rows
        if wrong and feature["side"] == "candidate" and draw(st.integers(0, 5)) == 0:
            count += 1
        of_rows = _rows(feature, nulls=nulls and ("default" in feature or wrong))
        sent[name] = [draw(of_rows) for _ in range(count)]
    return sent


@st.composite
def _rows(draw: st.DrawFn, feature: Mapping[str, Any], *, nulls: bool) -> Row | None:
    if nulls and draw(st.integers(0, 3)) == 0:
        return None
    low = high = math.prod(feature.get("shape", ()))
    if "ragged" in feature:
        low, high = 0, feature["ragged"]["max_length"] + 1
    safe = draw(st.integers(0, 5 if feature["side"] == "user" else 2)) > 0
    values = raw_values(feature["type"], safe=safe)
    if feature["type"] == "float32" and not safe:
        values = values | st.sampled_from([math.nan, math.inf, -math.inf])
    drawn = draw(st.lists(values, min_size=low, max_size=high))
    if not feature.get("weights") or draw(st.booleans()):
        return Row(tuple(drawn))
    weights = st.lists(
        st.sampled_from([0.5, 1.0, 2.0, 0.25]), min_size=len(drawn), max_size=len(drawn)
    )
    return Row(tuple(drawn), tuple(draw(weights)))


def json_body(version: PlainVersion, sent: Mapping[str, Column], *, as_text: bool) -> bytes:
    """The body of `:rank`; integers as decimal strings where `as_text`."""
    body: dict[str, dict[str, object]] = {"user": {}, "candidates": {}}
    for feature in version.features:
        column = sent.get(feature["name"])
        if column is None:
            continue
        rows = [_json_row(feature, row, as_text=as_text) for row in column]
        if feature["side"] == "user":
            body["user"][feature["name"]] = rows[0]
        else:
            body["candidates"][feature["name"]] = rows
    return json.dumps(body, ensure_ascii=False).encode()


def _json_row(feature: Mapping[str, Any], row: Row | None, *, as_text: bool) -> object:
    if row is None:
        return None
    is_text = as_text and feature["type"] == "int64"
    values: list[Value] = [str(value) if is_text else value for value in row.values]
    if row.weights is not None:
        return {"ids": values, "weights": list(row.weights)}
    is_list = "ragged" in feature or math.prod(feature.get("shape", ())) > 1
    return values if is_list else values[0]


def message_body(version: PlainVersion, sent: Mapping[str, Column], *, raw: bool) -> bytes | None:
    """A serialised RankRequest, with numbers as bytes where `raw`; None where a row is null."""
    request = RankRequest(model_name="m")
    for feature in version.features:
        rows = sent.get(feature["name"])
        if rows is None:
            continue
        full = [row for row in rows if row is not None]
        if len(full) < len(rows):
            return None
        side = request.user if feature["side"] == "user" else request.candidates
        column = side[feature["name"]]
        column.SetInParent()
        values: Sequence[Any] = [value for row in full for value in row.values]
        if feature["type"] == "string":
            column.strings.extend([value.encode() for value in values])
        elif raw:
            is_int = feature["type"] == "int64"
            column.type = INT64 if is_int else FLOAT32
            column.raw = np.array(values, "<i8" if is_int else "<f4").tobytes()
        elif feature["type"] == "int64":
            column.int64s.extend(values)
        else:
            column.floats.extend(values)
        if "ragged" in feature:
            column.lengths = np.array([len(row.values) for row in full], "<u4").tobytes()
        if any(row.weights is not None for row in full):
            weights = [one for row in full for one in row.weights or [1.0] * len(row.values)]
            column.weights = np.array(weights, "<f4").tobytes()
    return request.SerializeToString()
