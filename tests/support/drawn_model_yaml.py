"""Hypothesis strategies of whole versions that rank: model.yaml, inputs of a graph, tables, items.

A version is drawn so that it can be served, and then some are changed in one place: what becomes
of those, a plain reading has to say.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from drawn_model_changes import CHANGES
from drawn_values import INTS, KNOWN_INTS, KNOWN_WORDS, raw_values
from plain_model_yaml import (
    HOLDS,
    GraphInput,
    PlainItems,
    PlainTable,
    PlainVersion,
    keys_each,
    makes_ids,
    width,
)

__all__ = ["versions"]

_FUNCTIONS: Final = ("xxh64", "murmur3_x64_128_low", "farmhash_fingerprint64")
_NAMES: Final = ("f", "größe", "a b", "x.y", "yes", "123", "user_id")
_LONG: Final = [f"value number {number} of a list too long for a message" for number in range(400)]

Document = dict[str, Any]


@st.composite
def versions(draw: st.DrawFn) -> PlainVersion:
    """Versions with a ranking; `extra.changed` of the document says what was changed, if anything.

    The graph has the output `score`, [N], a copy of the input `anchor`, and a copy of each input.
    """
    version = _Drawing(draw).version()
    version.document["extra"] = {"changed": "nothing"}
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(CHANGES)))
        version.document["extra"]["changed"] = name
        CHANGES[name](draw, version)
    return version


class _Drawing:
    """A version under construction."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._features: list[Document] = [
            {"name": "anchor", "side": "candidate", "type": "float32", "default": 0.5}
        ]
        self._inputs = {"anchor": GraphInput("FP32", (-1,))}
        self._lookups: list[Document] = []
        self._meanings: dict[str, Document] = {}
        self._files: dict[str, bytes] = {}
        self._tables: dict[str, PlainTable] = {}
        self._packed: list[tuple[Document, str]] = []  # feature; columns, or that of its length
        self._packed_type = draw(st.sampled_from(["FP32", "FP32", "INT64", "FP64", "INT32"]))
        self._buffers = {"emb": 0, "user_emb": 0}
        self._users: list[str] = []

    def version(self) -> PlainVersion:
        """Draw everything."""
        draw = self._draw
        count = draw(st.integers(1, 5))
        names = draw(st.permutations([f"{_NAMES[at]}{at}" for at in range(count)] + ["item"]))
        for name in names:
            self._add(name, is_id=name == "item")
        self._pack()
        for buffer, columns in self._buffers.items():
            if columns:
                open_or_not = draw(st.sampled_from([columns, -1]))
                datatype = draw(st.sampled_from(["FP32", "FP32", "FP16"]))
                self._inputs[buffer] = GraphInput(datatype, (-1, open_or_not))
                if buffer == "user_emb" and self._coin():
                    self._users.append(buffer)
        ranking: Document = {"id": "item", "score": {"output": "score"}}
        if draw(st.integers(0, 3)):
            ranking["on_bad_candidate"] = draw(st.sampled_from(["error", "report", "report"]))
        keys = [one for one in self._features if _is_key(one)]
        if keys and self._coin():
            ranking["routing_key"] = draw(st.sampled_from(keys))["name"]
        document: Document = {"optimize": {"split": "off"}, "features": self._features}
        items = self._items(document, ranking) if draw(st.integers(0, 2)) == 0 else None
        document["ranking"] = ranking
        if self._lookups:
            document["lookups"] = draw(st.permutations(self._lookups))
        if self._meanings:
            document["tables"] = self._meanings
        if self._users or self._coin():
            document["user_inputs"] = self._users or ("none" if self._coin() else [])
        inputs = {name: self._inputs[name] for name in draw(st.permutations(list(self._inputs)))}
        return PlainVersion(document, inputs, self._files, self._tables, items)

    def _coin(self) -> bool:
        return self._draw(st.booleans())

    def _add(self, name: str, *, is_id: bool) -> None:
        draw = self._draw
        kinds = ["int64", "string"] if is_id else ["int64", "float32", "string"]
        feature: Document = {
            "name": name,
            "side": "candidate" if is_id else draw(st.sampled_from(["user", "candidate"])),
            "type": draw(st.sampled_from(kinds)),
        }
        self._transform(feature)
        form = "one" if is_id else draw(st.sampled_from(["one", "one", "sequence", "bag"]))
        where = draw(st.sampled_from(["own", "other", "packed", "packed", "lookup", "lookup"]))
        if form != "one" and "multi_hash" in feature:
            form = "one"
        if form != "one" and feature["type"] == "string" and not makes_ids(feature):
            form = "one"
        if form == "bag" and not makes_ids(feature):
            form = "sequence"
        if form == "bag" or (where == "lookup" and not makes_ids(feature)):
            where = "lookup" if makes_ids(feature) else "own"
        if form != "one":
            self._ragged(feature, form, where)
        elif feature["type"] == "float32" and "bucketize" not in feature and draw(st.booleans()):
            feature["shape"] = list(draw(st.sampled_from([(1,), (3,), (2, 2)])))
        if is_id and draw(st.integers(0, 2)) == 0:
            where = "nowhere"
        self._default(feature)
        self._place(feature, where)
        self._features.insert(draw(st.integers(0, len(self._features))), feature)

    def _transform(self, feature: Document) -> None:
        draw, kind = self._draw, feature["type"]
        which = draw(st.sampled_from(["none", "hash", "vocabulary", "bucketize", "multi_hash"]))
        buckets = draw(st.sampled_from([1, 7, 1000, 2**16, 2**32]))
        seed = draw(st.sampled_from([0, 9, 2**40]))
        if which == "bucketize" and kind != "string":
            boundaries = draw(
                st.sampled_from([(0.0,), (-0.5, 0.7, 18), (-1e19, -2.5, 0.3, 1e19), (1, 7)])
            )
            feature["bucketize"] = {"boundaries": list(boundaries)}
        if kind == "float32":
            return
        function = draw(st.sampled_from(_FUNCTIONS))
        if which == "hash":
            count = draw(st.sampled_from([buckets, 0]))
            feature["hash"] = {"function": function, "num_buckets": count}
            if function != "farmhash_fingerprint64" and draw(st.booleans()):
                feature["hash"]["seed"] = seed
        elif which == "vocabulary":
            feature["vocabulary"] = self._vocabulary(feature)
        elif which == "multi_hash":
            several: Document = {"num_buckets": buckets, "combine": "concat"}
            tables = [f"{feature['name']}.t{key}" for key in range(draw(st.integers(1, 3)))]
            if kind == "int64" and draw(st.booleans()):
                tables = [f"{feature['name']}.q", f"{feature['name']}.r"]
                several["method"] = "quotient_remainder"
            else:
                several["method"] = "hashes"
                several["functions"] = [draw(st.sampled_from(_FUNCTIONS)) for _ in tables]
                if draw(st.booleans()):
                    several["seed"] = seed
            several["combine"] = draw(st.sampled_from(["sum", "multiply", "concat"]))
            feature["multi_hash"] = several | {"tables": tables}

    def _vocabulary(self, feature: Document) -> Document:
        draw = self._draw
        known: Sequence[Any] = KNOWN_INTS if feature["type"] == "int64" else KNOWN_WORDS
        values = list(draw(st.permutations(known)))[: draw(st.integers(1, len(known)))]
        stated: Document = {}
        if draw(st.booleans()):
            stated["values"] = values
        else:
            if feature["type"] == "string" and draw(st.integers(0, 3)) == 0:
                values += _LONG
            end = draw(st.sampled_from(["\n", "\r\n"]))
            text = end.join(map(str, values)) + draw(st.sampled_from(["", end]))
            if not text or (text.endswith(end) and not str(values[-1])):
                text += end  # the last line is an empty string
            elif not str(values[-1]):
                text += end
            stated["file"] = f"vocab/{len(self._files)}.txt"
            self._files[stated["file"]] = text.encode()
        if draw(st.booleans()):
            stated["first_id"] = draw(st.sampled_from([1, 100, 0]))
        stated["unknown"] = draw(st.sampled_from([0, -1, 2000, "error"]))
        if stated["unknown"] == "error" and draw(st.booleans()):
            del stated["unknown"]
        return stated

    def _ragged(self, feature: Document, form: str, where: str) -> None:
        draw = self._draw
        most = draw(st.integers(1, 4))
        ragged: Document = {"max_length": most}
        if draw(st.booleans()):
            ragged["keep"] = draw(st.sampled_from(["first", "last", "error"]))
        if form == "sequence":
            ragged["pad_to"] = draw(st.sampled_from([most, most + 2]))
            if draw(st.booleans()):
                ragged["padding"] = draw(st.sampled_from([0, -1, 5]))
        elif draw(st.booleans()):
            feature["weights"] = True
        if where != "packed" and draw(st.integers(0, 2)) == 0:
            into = f"{feature['name']}:length"
            ragged["lengths_input"] = into
            datatype = draw(st.sampled_from(["INT64", "INT32", "FP32", "FP16"]))
            self._inputs[into] = GraphInput(datatype, draw(st.sampled_from([(-1,), (-1, 1)])))
            if feature["side"] == "user" and draw(st.booleans()):
                self._users.append(into)
        feature["ragged"] = ragged

    def _default(self, feature: Document) -> None:
        draw = self._draw
        if not draw(st.booleans()):
            return
        values = raw_values(feature["type"], safe=True)
        stated = feature.get("vocabulary")
        if stated is not None and stated.get("unknown", "error") == "error":
            known = stated.get("values") or self._known(feature)
            values = st.sampled_from(known[:5])
        if "ragged" in feature:
            count = draw(st.integers(0, feature["ragged"]["max_length"]))
            feature["default"] = draw(st.lists(values, min_size=count, max_size=count))
        elif feature.get("shape"):
            count = math.prod(feature["shape"])
            feature["default"] = draw(st.lists(values, min_size=count, max_size=count))
        else:
            feature["default"] = draw(values)

    def _known(self, feature: Document) -> list[Any]:
        lines = self._files[feature["vocabulary"]["file"]].decode().splitlines()
        return [int(line) for line in lines] if feature["type"] == "int64" else lines

    def _place(self, feature: Document, where: str) -> None:
        draw = self._draw
        types = _types(feature)
        if where == "packed" and self._packed_type not in types:
            where = "own"
        if where == "nowhere":
            return
        if where == "packed":
            self._packed.append((feature, "values"))
            if "ragged" in feature and draw(st.booleans()):
                self._packed.append((feature, "length"))
        elif where == "lookup":
            self._look_up(feature)
        elif "multi_hash" in feature:
            names = feature["multi_hash"]["tables"]
            if where == "other":
                feature["input"] = f"{feature['name']}:keys"
                keys = (-1, draw(st.sampled_from([len(names), -1])))
                self._declare(feature, feature["input"], keys, types)
            else:
                for name in names:
                    shapes: list[tuple[int, ...]] = [(-1,), (-1, 1)]
                    self._declare(feature, name, draw(st.sampled_from(shapes)), types)
        else:
            name = feature["name"]
            if where == "other":
                name = feature["input"] = f"{name}:in"
            shape: tuple[int, ...] = (-1, *feature.get("shape", ()))
            if "ragged" in feature:
                shape = (-1, draw(st.sampled_from([feature["ragged"]["pad_to"], -1])))
            elif shape == (-1,):
                shape = draw(st.sampled_from([(-1,), (-1, 1), (-1, -1)]))
            self._declare(feature, name, shape, types)

    def _declare(
        self, feature: Document, name: str, shape: tuple[int, ...], types: Sequence[str]
    ) -> None:
        draw = self._draw
        self._inputs[name] = GraphInput(draw(st.sampled_from(types)), shape)
        if feature["side"] == "user" and draw(st.booleans()):
            self._users.append(name)

    def _look_up(self, feature: Document) -> None:
        draw = self._draw
        several = feature.get("multi_hash")
        buffer = "user_emb" if feature["side"] == "user" and draw(st.booleans()) else "emb"
        names = [f"{feature['name']}.table"] if several is None else several["tables"]
        dim = draw(st.integers(1, 3))
        ragged = feature.get("ragged", {})
        combiner = draw(st.sampled_from(["sum", "mean", "sqrtn", "max", "none"]))
        if feature.get("weights") and combiner in ("max", "none"):
            combiner = "mean"
        length = ragged.get("pad_to", ragged.get("max_length", 1)) if combiner == "none" else 1
        begin = self._buffers[buffer]
        is_joined = several is not None and several["combine"] != "concat"
        for at, name in enumerate(names):
            self._tables[name] = self._table(name, dim)
            first = begin if is_joined else begin + at * dim * length
            columns = [first, first + dim * length]
            lookup: Document = {"feature": feature["name"], "table": name}
            if combiner != "none" or draw(st.booleans()):
                lookup["combiner"] = combiner
            self._lookups.append(lookup | {"output": {"input": buffer, "columns": columns}})
            self._buffers[buffer] = columns[1]

    def _table(self, name: str, dim: int) -> PlainTable:
        draw = self._draw
        keys = None
        if draw(st.booleans()):
            several = st.lists(st.sampled_from([*INTS, 2, 4, 5]), min_size=1, unique=True)
            keys = tuple(draw(several))
        count = draw(st.integers(1, 8)) if keys is None else len(keys)
        numbers = st.lists(st.integers(-8, 8).map(float), min_size=dim, max_size=dim).map(tuple)
        rows = tuple(draw(st.lists(numbers, min_size=count, max_size=count)))
        meaning: Document = {}
        policies = (
            ["none", "zeros", "vector", "key"] * 2 + ["error"] + ["original"] * (keys is None)
        )
        match draw(st.sampled_from(policies)):
            case "vector":
                meaning["missing"] = {"policy": "vector", "value": [0.5] * dim}
            case "key":
                meaning["missing"] = {"policy": "key", "key": draw(st.sampled_from([0, 7]))}
            case "none":
                pass
            case word:
                meaning["missing"] = word
        if draw(st.integers(0, 2)) == 0:
            meaning["padding_key"] = draw(st.sampled_from([0, 7, -1]))
        if meaning:
            self._meanings[name] = meaning
        return PlainTable(keys, rows)

    def _pack(self) -> None:
        """Give features their columns of one input, in any order."""
        draw = self._draw
        if not self._packed:
            return
        column = 0
        places: dict[tuple[int, str], tuple[int, int]] = {}
        for feature, what in draw(st.permutations(self._packed)):
            count = 1
            if what == "values":
                count = keys_each(feature) if "multi_hash" in feature else width(feature)
            places[id(feature), what] = (column, column + count)
            column += count
        for feature, what in self._packed:
            begin, end = places[id(feature), what]
            if what == "values":
                feature["input"] = {"name": "X", "columns": [begin, end]}
            else:
                feature["input"]["length_column"] = begin
        self._inputs["X"] = GraphInput(
            self._packed_type, (-1, draw(st.sampled_from([column, column, -1])))
        )
        are_users = all(feature["side"] == "user" for feature, _ in self._packed)
        if are_users and draw(st.booleans()):
            self._users.append("X")

    def _items(self, document: Document, ranking: Document) -> PlainItems | None:
        draw = self._draw
        key = next(one for one in self._features if one["name"] == "item")
        ids = draw(st.permutations(KNOWN_INTS if key["type"] == "int64" else KNOWN_WORDS))[:4]
        filled = [
            one
            for one in self._features
            if one["side"] == "candidate" and one is not key and draw(st.booleans())
        ]
        columns: dict[str, Sequence[Any]] = {"id": ids}
        types = {"id": key["type"]}
        stated: dict[str, str] = {}
        for feature in filled:
            name = stated[feature["name"]] = f"c {feature['name']}"
            values = raw_values(feature["type"], safe=True)
            row: st.SearchStrategy[Any] = values
            types[name] = feature["type"]
            if "ragged" in feature:
                row = st.lists(values, max_size=feature["ragged"]["max_length"] + 1)
                types[name] = f"list<{feature['type']}>"
            elif math.prod(feature.get("shape", ())) > 1:
                size = math.prod(feature["shape"])
                row = st.lists(values, min_size=size, max_size=size)
                types[name] = f"list<{feature['type']}>"
            if feature.get("weights"):
                types[name] = f"weighted<{feature['type']}>"
            columns[name] = [draw(st.one_of(row, row, row, st.none())) for _ in ids]
        ranking["item_table"] = "items"
        document["item_tables"] = {
            "items": {"file": "items/0000.parquet", "key": "id", "columns": stated}
        }
        return PlainItems(ids, columns, types)


def _is_key(feature: Mapping[str, Any]) -> bool:
    return (
        feature["side"] == "user"
        and feature["type"] in ("int64", "string")
        and ("ragged" not in feature)
    )


def _types(feature: Mapping[str, Any]) -> list[str]:
    """Datatypes that hold all that a feature makes of safe values."""
    if not makes_ids(feature):
        return ["BYTES"] if feature["type"] == "string" else ["FP16", "FP32", "FP64"]
    most = 7
    hashed = feature.get("hash", feature.get("multi_hash"))
    if hashed is not None:
        most = hashed["num_buckets"] - 1 if hashed["num_buckets"] else 2**63 - 1
    if "vocabulary" in feature:
        most = 2000
    return [name for name, (_, high) in HOLDS.items() if high >= most]
