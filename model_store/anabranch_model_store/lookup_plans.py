"""Lookups of model.yaml, compiled: which columns of which graph input come from which table.

The graph is the dense part; inputs that lookups fill become buffers, the others pass through, and
callers send features instead. What does not fit is refused here, before a row is read.
"""

from collections.abc import Mapping
from typing import Final, Literal

from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.signature import Signature
from anabranch_model_store.feature_forms import BagForm, feature_forms, key_names
from anabranch_model_store.model_yaml import Lookup, ModelMeaning
from anabranch_runtime.sent_features import LENGTHS, WEIGHTS
from anabranch_wire import lookups as wire
from anabranch_wire.errors import InvalidInput
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanTable, Source
from anabranch_wire.tensors import Datatype, TensorSpec
from anabranch_wire.weight_targets import ToTable

__all__ = ["compile_lookups", "user_features"]

_TYPES: Final[Mapping[Datatype, Literal["f32", "f16"]]] = {"FP32": "f32", "FP16": "f16"}


def compile_lookups(
    meaning: ModelMeaning,
    signature: Signature,
    axes: RowAxes,
    tables: Mapping[str, PlanTable],
    source: Source,
    structure_hash: str,
) -> Plan:
    """Return the plan of a version with lookups, whose graph runs as it was published.

    Args:
        meaning: its model.yaml, whose names of graph inputs are right.
        signature: of the graph.
        axes: what axis 0 of every graph input counts.
        tables: each name by which lookups mean a table -> the table.
        source: the graph's file.
        structure_hash: of the graph.

    Raises:
        InvalidInput: a lookup does not fit its table, its feature or the graph.
        Unsupported: a feature needs what this release does not have.
    """
    filled = {lookup.output.input for lookup in meaning.lookups}
    dims = {name: table.dim for name, table in tables.items()}
    forms = feature_forms(meaning, dims)
    used = tuple({table.name: table for table in tables.values()}.values())
    once = _user_buffers(meaning, forms)
    buffers = tuple(
        _buffer(spec, meaning, axes, "user" if spec.name in once else "row")
        for spec in signature.inputs
        if spec.name in filled
    )
    names = [buffer.name for buffer in buffers]
    joins: dict[str, Literal["sum", "multiply"]] = {
        feature.name: feature.multi_hash.combine
        for feature in meaning.features
        if feature.multi_hash is not None and feature.multi_hash.combine != "concat"
    }
    first: set[str] = set()
    compiled = []
    for key, lookup in zip(key_names(meaning), meaning.lookups, strict=True):
        index = names.index(lookup.output.input)
        table = tables[lookup.table]
        form = forms[key]
        combine = joins.get(lookup.feature) if lookup.feature in first else None
        first.add(lookup.feature)
        compiled.append(
            wire.Lookup(
                table=used.index(table),
                side=buffers[index].side,
                ids=wire.Ids(input=form.name),
                combiner=lookup.combiner,
                lengths=wire.Lengths(input=form.name + LENGTHS) if form.ragged else None,
                weights=wire.Values(input=form.name + WEIGHTS) if form.weighted else None,
                max_length=_length(lookup, form, table.dim),
                output=wire.Output(buffer=index, column=lookup.output.columns[0]),
                combine=combine,
            )
        )
    return Plan(
        format=1,
        source=source,
        structure_hash=structure_hash,
        graphs=Graphs(dense=source.file),
        tables=used,
        buffers=buffers,
        lookups=tuple(compiled),
        pass_through=tuple(spec.name for spec in signature.inputs if spec.name not in filled),
        weights={table.name: (ToTable(index=index),) for index, table in enumerate(used)},
    )


def user_features(meaning: ModelMeaning) -> tuple[str, ...]:
    """Return the inputs of looked-up features whose one row may stand for all of a request."""
    read: dict[str, list[str]] = {}
    for key, lookup in zip(key_names(meaning), meaning.lookups, strict=True):
        keys = read.setdefault(lookup.feature, [])
        if key not in keys:
            keys.append(key)
    named = meaning.user_inputs if isinstance(meaning.user_inputs, tuple) else ()
    sides = [feature.name for feature in meaning.features if feature.side == "user"]
    return tuple(key for name in dict.fromkeys((*named, *sides)) for key in read.get(name, ()))


def _user_buffers(meaning: ModelMeaning, forms: Mapping[str, BagForm]) -> frozenset[str]:
    """Return the graph inputs that are filled once per user.

    Those under `user_inputs` that only features of the user fill; and such a feature fills no other
    input, since it is looked up either for users or for rows.
    """
    named = meaning.user_inputs if isinstance(meaning.user_inputs, tuple) else ()
    fillers: dict[str, set[str]] = {}
    for key, lookup in zip(key_names(meaning), meaning.lookups, strict=True):
        fillers.setdefault(lookup.output.input, set()).add(key)
    found = {
        name
        for name, features in fillers.items()
        if name in named and all(forms[feature].is_user for feature in features)
    }
    while True:
        elsewhere = set[str]().union(*(fillers[name] for name in fillers if name not in found))
        kept = {name for name in found if fillers[name].isdisjoint(elsewhere)}
        if kept == found:
            return frozenset(found)
        found = kept


def _buffer(spec: TensorSpec, meaning: ModelMeaning, axes: RowAxes, side: wire.Side) -> Buffer:
    """Return a graph input as a buffer, every column of which is filled."""
    place = f"model.yaml: lookups: input {spec.name!r}"
    lookups = [lookup for lookup in meaning.lookups if lookup.output.input == spec.name]
    spans = sorted(lookup.output.columns for lookup in lookups)
    dtype = _TYPES.get(spec.datatype)
    if dtype is None or len(spec.shape) != 2 or axes.kinds[spec.name].kind != "rows":
        raise InvalidInput(
            f"{place}: expected FP32 or FP16 [rows, columns]; found {spec.datatype} "
            f"{spec.shape_text}"
        )
    last = spans[-1][1]
    columns = last if spec.shape[1] == -1 else spec.shape[1]
    if last > columns:
        raise InvalidInput(f"{place}: lookups fill columns up to {last}; it has {columns}")
    filled = 0
    for begin, end in (*spans, (columns, columns)):
        if begin > filled:
            raise InvalidInput(
                f"{place}: columns {filled} to {begin} would stay zero, since no lookup fills "
                "them; add one, or export the graph without them"
            )
        filled = end
    return Buffer(name=spec.name, side=side, dtype=dtype, columns=columns)


def _length(lookup: Lookup, form: BagForm, dim: int) -> int:
    """Return how many ids of a row a lookup takes, checked against the columns that it writes."""
    begin, end = lookup.output.columns
    place = f"model.yaml: lookups: feature {form.name!r} in table {lookup.table!r}"
    is_sequence = lookup.combiner == "none"
    length = form.columns_length if is_sequence else form.max_length
    expected = dim * length if is_sequence else dim
    if end - begin != expected:
        ids = f" for each of {length} ids" if is_sequence and length > 1 else ""
        raise InvalidInput(
            f"{place}: columns [{begin}, {end}] are {end - begin}; rows have {dim} numbers{ids}, "
            f"so {expected} were expected"
        )
    if form.weighted and lookup.combiner in ("none", "max"):
        raise InvalidInput(f"{place}: weights have no meaning for combiner: {lookup.combiner}")
    return length
