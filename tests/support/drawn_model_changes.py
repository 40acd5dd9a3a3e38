"""Changes of one place of a version that may make it one to be refused."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import strategies as st

from plain_model_yaml import HOLDS, GraphInput, PlainVersion

__all__ = ["CHANGES"]

Document = dict[str, Any]


def _some(draw: st.DrawFn, version: PlainVersion, key: str = "name") -> Document:
    """A feature that has a key, or any."""
    with_key = [one for one in version.features if key in one] or version.features
    return draw(st.sampled_from(with_key))


def _change_datatype(draw: st.DrawFn, version: PlainVersion) -> None:
    name = draw(st.sampled_from(sorted(set(version.inputs) - {"anchor"}) or ["anchor"]))
    datatype = draw(st.sampled_from([*HOLDS, "BYTES"]))
    version.inputs[name] = GraphInput(datatype, version.inputs[name].shape)


def _change_shape(draw: st.DrawFn, version: PlainVersion) -> None:
    name = draw(st.sampled_from(sorted(set(version.inputs) - {"anchor"}) or ["anchor"]))
    spec = version.inputs[name]
    shapes = [(*spec.shape, 1), spec.shape[:1], (-1, 3), (-1, 1), (2, *spec.shape[1:])]
    version.inputs[name] = GraphInput(spec.datatype, draw(st.sampled_from(shapes)))


def _drop_feature(draw: st.DrawFn, version: PlainVersion) -> None:
    version.features.remove(_some(draw, version))


def _repeat_feature(draw: st.DrawFn, version: PlainVersion) -> None:
    version.features.append(copy.deepcopy(_some(draw, version)))


def _add_input(draw: st.DrawFn, version: PlainVersion) -> None:
    names = ["more", *(feature["name"] for feature in version.features)]
    name = draw(st.sampled_from(names))
    version.inputs.setdefault(name, GraphInput("INT64", (-1,)))


def _drop_input(draw: st.DrawFn, version: PlainVersion) -> None:
    name = draw(st.sampled_from(sorted(set(version.inputs) - {"anchor"}) or ["anchor"]))
    if name != "anchor":
        del version.inputs[name]


def _change_buckets(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version, draw(st.sampled_from(["hash", "multi_hash"])))
    for key in ("hash", "multi_hash"):
        if key in feature:
            feature[key]["num_buckets"] = draw(
                st.sampled_from([2**11 + 1, 2**11 + 2, 2**31, 2**62])
            )
            feature[key]["seed"] = draw(st.sampled_from([0, 5]))


def _change_vocabulary(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version, "vocabulary")
    stated = feature.get("vocabulary")
    if stated is None:
        return
    match draw(st.integers(0, 6)):
        case 0:
            stated["first_id"] = draw(st.sampled_from([2**24, 2**31, 2**63 - 3]))
        case 1:
            stated["unknown"] = draw(st.sampled_from([2**11, 2**31, -(2**31) - 1]))
        case 2 if "values" in stated:
            stated["values"].append(stated["values"][0])
        case 3 if "values" in stated:
            stated["values"].append("7" if feature["type"] == "int64" else 7)
        case 4 if "file" in stated:
            version.files[stated["file"]] += draw(st.sampled_from([b"\n\n", b"01\n", b"+1", b"x"]))
        case 5 if "file" in stated:
            stated["file"] = "vocab/none.txt"
        case _:
            stated.pop("unknown", None)


def _change_ragged(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version, "ragged")
    padded = [one for one in version.features if "pad_to" in one.get("ragged", {})]
    ragged = feature.setdefault("ragged", {"max_length": 2})
    match draw(st.integers(0, 4)):
        case 0:
            ragged = draw(st.sampled_from(padded or [feature]))["ragged"]
            ragged["padding"] = draw(st.sampled_from([0.5, 2**11 + 1, 2**24 + 1, -(2**31) - 1]))
        case 1:
            ragged["pad_to"] = draw(st.integers(1, 5))
        case 2:
            ragged.pop("pad_to", None)
        case 3:
            ragged["max_length"] = draw(st.integers(1, 5))
        case _:
            ragged["lengths_input"] = draw(st.sampled_from(sorted(version.inputs)))


def _change_default(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version)
    one = draw(st.sampled_from([0, -(2**31) - 1, 2**63, 0.25, 7e4, 1e39, "red", "blue", [], [0.5]]))
    feature["default"] = copy.copy(one)


def _change_side(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version)
    feature["side"] = "user" if feature["side"] == "candidate" else "candidate"


def _change_type(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version)
    feature["type"] = draw(st.sampled_from(["int64", "float32", "string"]))


def _add_transform(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version)
    more = draw(
        st.sampled_from(
            [
                ("bucketize", {"boundaries": [1, 1.0]}),
                ("bucketize", {"boundaries": [3, 5.0]}),
                ("hash", {"function": "farmhash_fingerprint64", "num_buckets": 9, "seed": 1}),
                ("hash", {"function": "xxh64", "num_buckets": 9}),
                ("vocabulary", {"values": [5, 7], "unknown": 0}),
            ]
        )
    )
    feature[more[0]] = copy.deepcopy(more[1])


def _drop_transform(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version)
    for key in ("hash", "vocabulary", "bucketize", "multi_hash"):
        feature.pop(key, None)


def _change_several(draw: st.DrawFn, version: PlainVersion) -> None:
    several = _some(draw, version, "multi_hash").get("multi_hash")
    if several is None:
        return
    match draw(st.integers(0, 3)):
        case 0:
            several["tables"].append(draw(st.sampled_from([several["tables"][0], "another"])))
        case 1:
            several["functions"] = ["xxh64"]
        case 2:
            several["method"] = draw(st.sampled_from(["hashes", "quotient_remainder"]))
        case _:
            several["combine"] = draw(st.sampled_from(["sum", "concat"]))


def _add_key(draw: st.DrawFn, version: PlainVersion) -> None:
    feature = _some(draw, version)
    key, value = draw(
        st.sampled_from([("weights", True), ("shape", [2]), ("defualt", 1), ("input", "anchor")])
    )
    feature[key] = copy.copy(value)


def _change_columns(draw: st.DrawFn, version: PlainVersion) -> None:
    packed = [one["input"] for one in version.features if isinstance(one.get("input"), dict)]
    packed += [lookup["output"] for lookup in version.lookups]
    if not packed:
        return
    one = draw(st.sampled_from(packed))
    begin, end = one["columns"]
    by = draw(st.sampled_from([-1, 1, 2]))
    one["columns"] = draw(st.sampled_from([[max(0, begin + by), end + by], [begin, end + by]]))
    if "length_column" in one and draw(st.booleans()):
        one["length_column"] = max(0, one["length_column"] + by)


def _change_lookup(draw: st.DrawFn, version: PlainVersion) -> None:
    if not version.lookups:
        return
    lookup = draw(st.sampled_from(version.lookups))
    match draw(st.integers(0, 3)):
        case 0:
            version.lookups.remove(lookup)
            if not version.lookups:
                del version.document["lookups"]
        case 1:
            lookup["combiner"] = draw(st.sampled_from(["sum", "mean", "max", "none"]))
        case 2:
            lookup["table"] = draw(st.sampled_from([*sorted(version.tables), "none"]))
        case _:
            names = [feature["name"] for feature in version.features]
            lookup["feature"] = draw(st.sampled_from([*names, "none"]))


def _change_table(draw: st.DrawFn, version: PlainVersion) -> None:
    if not version.tables:
        return
    name = draw(st.sampled_from(sorted(version.tables)))
    meaning = version.document.setdefault("tables", {}).setdefault(name, {})
    meaning["missing"] = draw(
        st.sampled_from(["original", "error", {"policy": "vector", "value": [1.0, 2.0]}])
    )


def _change_users(draw: st.DrawFn, version: PlainVersion) -> None:
    names = [*version.inputs, *(feature["name"] for feature in version.features)]
    version.document["user_inputs"] = [draw(st.sampled_from(names))]


def _change_ranking(draw: st.DrawFn, version: PlainVersion) -> None:
    ranking = version.document["ranking"]
    name = _some(draw, version)["name"]
    match draw(st.integers(0, 2)):
        case 0:
            ranking["id"] = name
        case 1:
            ranking["routing_key"] = name
        case _:
            ranking["score"] = {"output": "none"}


def _change_items(draw: st.DrawFn, version: PlainVersion) -> None:
    if version.items is None:
        return
    columns = version.document["item_tables"]["items"]["columns"]
    name = _some(draw, version)["name"]
    columns[name] = draw(st.sampled_from([*version.items.columns, "none"]))


CHANGES: Final[Mapping[str, Callable[[st.DrawFn, PlainVersion], None]]] = {
    "change datatype": _change_datatype,
    "change shape": _change_shape,
    "drop feature": _drop_feature,
    "repeat feature": _repeat_feature,
    "add input": _add_input,
    "drop input": _drop_input,
    "change buckets": _change_buckets,
    "change vocabulary": _change_vocabulary,
    "change ragged": _change_ragged,
    "change default": _change_default,
    "change side": _change_side,
    "change type": _change_type,
    "add transform": _add_transform,
    "drop transform": _drop_transform,
    "change several": _change_several,
    "add key": _add_key,
    "change columns": _change_columns,
    "change lookup": _change_lookup,
    "change table": _change_table,
    "change users": _change_users,
    "change ranking": _change_ranking,
    "change items": _change_items,
}
"""What a change is called -> what makes it."""
