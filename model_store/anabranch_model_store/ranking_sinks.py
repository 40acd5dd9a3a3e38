"""Where the values of features go: every dense input of the graph is filled, each column once.

A feature claims graph inputs, or columns of one; here claims meet what the graph declares.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from anabranch_graph_opt.row_axes import RowAxes
from anabranch_model_store.model_yaml import Feature, PackedInput
from anabranch_runtime.ranking.plans import SinkPlan, TensorFill
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["FeatureSinks", "Filled", "fill_inputs", "makes_ids"]

_PLACE: Final = "model.yaml: ranking"
_INTEGERS: Final[tuple[Datatype, ...]] = ("INT64", "INT32", "FP64", "FP32", "FP16")
_DATATYPES: Final[Mapping[str, tuple[Datatype, ...]]] = {
    "ids": _INTEGERS,
    "lengths": _INTEGERS,
    "numbers": ("FP64", "FP32", "FP16"),
    "strings": ("BYTES",),
}
_EXACT: Final[Mapping[Datatype, int]] = {"INT32": 2**31 - 1, "FP32": 2**24, "FP16": 2**11}
_SIZES: Final = frozenset((-1, 1))
_MAX_ROW: Final = 1 << 24
"""Values of a row that features fill; an axis of open size is as long as they say."""


@dataclass(frozen=True, slots=True)
class FeatureSinks:
    """Where one feature goes.

    Attributes:
        values: one for each key of a value; none where lookups read it, or nothing does.
        lengths: of its rows, if anywhere.
    """

    values: tuple[SinkPlan, ...] = ()
    lengths: SinkPlan | None = None


@dataclass(frozen=True, slots=True)
class Filled:
    """The dense inputs of a graph with what fills them.

    Attributes:
        tensors: in the graph's order.
        sinks: of every feature, by name.
    """

    tensors: tuple[TensorFill, ...]
    sinks: Mapping[str, FeatureSinks]


@dataclass(frozen=True, slots=True)
class _Claim:
    """Some values of a feature for a graph input.

    Attributes:
        feature: whose.
        kind: what they are.
        key: which key of each value; 0 where there is one, and for lengths.
        input: name of the graph input.
        shape: of one row; () is one value.
        column: first one of an input that features share; None takes all of it.
    """

    feature: Feature
    kind: Literal["ids", "numbers", "strings", "lengths"]
    key: int
    input: str
    shape: tuple[int, ...]
    column: int | None

    @property
    def columns(self) -> int:
        return math.prod(self.shape)

    @property
    def text(self) -> str:
        of = f"the lengths of feature {self.feature.name!r}"
        return of if self.kind == "lengths" else f"feature {self.feature.name!r}"


def fill_inputs(
    features: Sequence[Feature],
    inputs: Sequence[TensorSpec],
    axes: RowAxes,
    users: Collection[str],
    looked_up: Collection[str],
    idle: Collection[str],
) -> Filled:
    """Find the place of every feature.

    Args:
        features: of model.yaml, whose spans do not overlap.
        inputs: dense ones of the graph, in its order.
        axes: what axis 0 of inputs counts.
        users: inputs that may have one row of a user for all rows.
        looked_up: features that lookups read.
        idle: features that need to go nowhere, where the graph has no input of their name.

    Raises:
        InvalidInput: an input stays empty, or a feature does not fit where it goes; says which.
    """
    if axes.unclear:
        raise InvalidInput(f"{_PLACE}: {axes.unclear}")
    names = {spec.name for spec in inputs}
    claims: dict[str, list[_Claim]] = defaultdict(list)
    for feature in features:
        if feature.name in idle and feature.input is None and feature.name not in names:
            continue
        for claim in _claims(feature, is_looked_up=feature.name in looked_up):
            if claim.input not in names:
                raise InvalidInput(
                    f"{_PLACE}: {claim.text} goes to {claim.input!r}, which is no input of the "
                    "graph that callers fill"
                )
            claims[claim.input].append(claim)
    tensors: list[TensorFill] = []
    values: dict[str, dict[int, SinkPlan]] = defaultdict(dict)
    lengths: dict[str, SinkPlan] = {}
    for index, spec in enumerate(inputs):
        own = claims[spec.name]
        tensors.append(_fill(spec, own, axes, once=spec.name in users))
        for claim in own:
            sink = SinkPlan(index, claim.column or 0)
            if claim.kind == "lengths":
                lengths[claim.feature.name] = sink
            else:
                values[claim.feature.name][claim.key] = sink
    sinks = {
        feature.name: FeatureSinks(
            tuple(sink for _, sink in sorted(values[feature.name].items())),
            lengths.get(feature.name),
        )
        for feature in features
    }
    return Filled(tuple(tensors), sinks)


def makes_ids(feature: Feature) -> bool:
    """Whether integers come of a feature, and not the numbers or strings that were sent."""
    transforms = (feature.hash, feature.vocabulary, feature.bucketize, feature.multi_hash)
    return feature.type == "int64" or any(one is not None for one in transforms)


def _claims(feature: Feature, *, is_looked_up: bool) -> Iterator[_Claim]:
    ragged, packed = feature.ragged, feature.input
    if ragged is not None and ragged.lengths_input is not None:
        yield _Claim(feature, "lengths", 0, ragged.lengths_input, (), None)
    if is_looked_up:
        return
    if isinstance(packed, PackedInput) and packed.length_column is not None:
        yield _Claim(feature, "lengths", 0, packed.name, (), packed.length_column)
    shape = feature.shape if ragged is None else (ragged.pad_to or 0,)
    kind: Literal["ids", "numbers", "strings"] = "ids"
    if not makes_ids(feature):
        kind = "strings" if feature.type == "string" else "numbers"
    tables = () if feature.multi_hash is None else feature.multi_hash.tables
    if isinstance(packed, PackedInput):
        begin, end = packed.columns
        if tables:
            for key in range(len(tables)):
                yield _Claim(feature, kind, key, packed.name, (), begin + key)
        else:
            yield _Claim(feature, kind, 0, packed.name, (end - begin,), begin)
    elif not tables:
        yield _Claim(feature, kind, 0, packed or feature.name, shape, None)
    elif packed is None:
        for key, table in enumerate(tables):
            yield _Claim(feature, kind, key, table, (), None)
    else:
        for key in range(len(tables)):
            yield _Claim(feature, kind, key, packed, (), key)


def _fill(spec: TensorSpec, claims: Sequence[_Claim], axes: RowAxes, *, once: bool) -> TensorFill:
    """Return an input with what fills it, checked against what the graph declares."""
    place = f"{_PLACE}: input {spec.name!r}"
    if axes.kinds[spec.name].kind != "rows":
        raise InvalidInput(
            f"{place}: axis 0 does not count rows, so no feature can fill it; export the graph "
            "with a batch axis there, or without this input"
        )
    if not claims:
        raise InvalidInput(
            f"{place}: no feature fills it; add one under features, by this name or by its input:"
        )
    for claim in claims:
        _check_values(spec, claim)
        width = (claim.column or 0) + claim.columns
        if width > _MAX_ROW:
            raise InvalidInput(
                f"{_PLACE}: {claim.text} has rows of {width} values in input {spec.name!r}; "
                f"expected at most {_MAX_ROW}"
            )
    if claims[0].column is None:
        return TensorFill(spec.name, spec.datatype, _row_shape(spec, claims[0]), once)
    if len(spec.shape) != 2:
        raise InvalidInput(
            f"{place}: features fill columns of it; expected shape [rows, columns], found "
            f"{spec.shape_text}"
        )
    spans = sorted((claim.column or 0, (claim.column or 0) + claim.columns) for claim in claims)
    last = spans[-1][1]
    columns = last if spec.shape[1] == -1 else spec.shape[1]
    if last > columns:
        raise InvalidInput(f"{place}: features fill columns up to {last}; it has {columns}")
    filled = 0
    for begin, end in (*spans, (columns, columns)):
        if begin > filled:
            what = f"column {filled}" if begin == filled + 1 else f"columns {filled} to {begin}"
            raise InvalidInput(f"{place}: no feature fills {what}; add one under features")
        filled = end
    return TensorFill(spec.name, spec.datatype, (columns,), once)


def _row_shape(spec: TensorSpec, claim: _Claim) -> tuple[int, ...]:
    """Return the shape of a row that one feature fills."""
    declared, wanted = spec.shape[1:], claim.shape
    if wanted in ((), (1,)) and len(declared) <= 1 and _SIZES.issuperset(declared):
        return (1,) if declared else ()
    if len(declared) != len(wanted) or any(
        size not in (-1, own) for size, own in zip(declared, wanted, strict=True)
    ):
        own_shape = ", ".join(map(str, (-1, *wanted)))
        raise InvalidInput(
            f"{_PLACE}: {claim.text} has rows for [{own_shape}]; input {spec.name!r} is "
            f"{spec.shape_text}"
        )
    return wanted


def _check_values(spec: TensorSpec, claim: _Claim) -> None:
    feature, ragged = claim.feature, claim.feature.ragged
    what = f"{_PLACE}: {claim.text}"
    if claim.kind != "lengths" and ragged is not None and ragged.pad_to is None:
        raise InvalidInput(
            f"{what} is a bag (ragged without pad_to), and no lookup reads it; set ragged.pad_to "
            "for a sequence, or list it under lookups"
        )
    if claim.kind == "strings" and ragged is not None:
        raise InvalidInput(
            f"{what} is a sequence of strings; give it hash or vocabulary to make ids of them"
        )
    expected = _DATATYPES[claim.kind]
    if spec.datatype not in expected:
        makes = {"ids": "makes ids", "numbers": "makes numbers", "strings": "is a string"}
        remedy = "; give it hash or vocabulary to make ids" if claim.kind == "strings" else ""
        raise InvalidInput(
            f"{what} {makes.get(claim.kind, 'are numbers')}; input {spec.name!r} is "
            f"{spec.datatype}, expected {' or '.join(expected)}{remedy}"
        )
    if ragged is None:
        return
    place = f"{_PLACE}: feature {feature.name!r}: ragged"
    most = _EXACT.get(spec.datatype, 2**53)  # `padding` of a plan is a float
    if claim.kind == "lengths" and ragged.max_length > most:
        raise InvalidInput(
            f"{place}.max_length: {ragged.max_length}; its input {spec.name!r} ({spec.datatype}) "
            f"takes numbers up to {most}"
        )
    padding = ragged.padding or 0
    if claim.kind == "ids" and (padding != math.floor(padding) or abs(padding) > most):
        raise InvalidInput(
            f"{place}.padding: {padding}; ids in input {spec.name!r} ({spec.datatype}) are padded "
            f"with an integer of at most {most}"
        )
