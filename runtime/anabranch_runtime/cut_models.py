"""A model whose lookups were cut out of its graph: the same inputs and outputs, other parts inside.

Callers send the inputs of the original. Rows of tables are looked up by elements of those inputs,
or by what a prelude makes of them, and fill buffers that the dense graph takes instead of tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from anabranch_runtime.store import IdType
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Lookup
from anabranch_wire.plan import Plan
from anabranch_wire.tensors import Datatype, TensorSpec

if TYPE_CHECKING:
    from anabranch_runtime.models import DenseModel

__all__ = ["CutModel", "IdRead", "cut_model"]

_ID_TYPES: Final[Mapping[Datatype, IdType]] = MappingProxyType(
    {"INT64": "int64", "INT32": "int32", "FP32": "float32", "FP64": "float64"}
)


@dataclass(frozen=True, slots=True)
class IdRead:
    """Where one lookup reads its ids.

    Attributes:
        of_prelude: whether in an output of the prelude, else in an input of the original.
        index: of that tensor.
        columns: half-open range of the elements of one row, in row-major order.
    """

    of_prelude: bool
    index: int
    columns: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class CutModel:
    """What runs in place of an original graph; `cut_model` makes it.

    Attributes:
        plan: its lookups.
        inputs: of the original.
        dense: the graph that is left; what is known about rows is said of the original.
        prelude: makes ids; None where the plan says all.
        passed: per input of the dense graph the input of the original that it is; None for buffers.
        buffers: per buffer of the plan the input of the dense graph that it is.
        prelude_inputs: per input of the prelude the input of the original that it is.
        reads: per lookup of the plan.
        id_types: name of an input or of a prelude's output -> type of the ids in it.
    """

    plan: Plan
    inputs: tuple[TensorSpec, ...]
    dense: "DenseModel"
    prelude: "DenseModel | None"
    passed: tuple[int | None, ...]
    buffers: tuple[int, ...]
    prelude_inputs: tuple[int, ...]
    reads: tuple[IdRead, ...]
    id_types: Mapping[str, IdType]


def cut_model(
    plan: Plan,
    inputs: Sequence[TensorSpec],
    dense: "DenseModel",
    prelude: "DenseModel | None",
) -> CutModel:
    """Tie a plan to the graphs that it belongs to.

    Args:
        plan: of the version.
        inputs: of the original.
        dense: the graph that is left.
        prelude: what makes ids; None where the plan names none.

    Raises:
        InvalidInput: plan and graphs contradict each other.
        Unsupported: the plan has bags or a user graph.
    """
    if plan.graphs.user is not None:
        raise Unsupported("plan.json: this release runs no user graph")
    if (plan.graphs.prelude is None) != (prelude is None):
        raise InvalidInput("plan.json: a prelude is named, but there is none, or the reverse")
    positions = {spec.name: index for index, spec in enumerate(inputs)}
    names = [buffer.name for buffer in plan.buffers]
    passed: list[int | None] = []
    for spec in dense.inputs:
        if spec.name in names:
            passed.append(None)
        elif spec.name in plan.pass_through and spec.name in positions:
            passed.append(positions[spec.name])
        else:
            raise InvalidInput(
                f"plan.json: input {spec.name!r} of the dense graph is neither a buffer nor passed "
                "through"
            )
    dense_names = [spec.name for spec in dense.inputs]
    for name in names:
        if name not in dense_names:
            raise InvalidInput(f"plan.json: buffer {name!r} is no input of the dense graph")
    made = {} if prelude is None else {spec.name: i for i, spec in enumerate(prelude.outputs)}
    taken = () if prelude is None else prelude.inputs
    for spec in taken:
        if spec.name not in positions:
            raise InvalidInput(f"plan.json: the prelude takes {spec.name!r}, which is no input")
    reads, types = [], {}
    for index, lookup in enumerate(plan.lookups):
        where = f"plan.json: lookups[{index}]"
        if lookup.lengths is not None or lookup.weights is not None:
            raise Unsupported(f"{where}: bags of a graph's own inputs are not looked up yet")
        name = lookup.ids.input
        if name in made:
            assert prelude is not None
            spec = prelude.outputs[made[name]]
            read = IdRead(True, made[name], _columns(lookup, spec, where))
        elif name in positions:
            spec = inputs[positions[name]]
            read = IdRead(False, positions[name], _columns(lookup, spec, where))
        else:
            raise InvalidInput(f"{where}: there is no input {name!r}")
        if spec.datatype not in _ID_TYPES:
            raise Unsupported(f"{where}: ids of type {spec.datatype} in {name!r} are not looked up")
        types[name] = _ID_TYPES[spec.datatype]
        reads.append(read)
    return CutModel(
        plan=plan,
        inputs=tuple(inputs),
        dense=dense,
        prelude=prelude,
        passed=tuple(passed),
        buffers=tuple(dense_names.index(name) for name in names),
        prelude_inputs=tuple(positions[spec.name] for spec in taken),
        reads=tuple(reads),
        id_types=MappingProxyType(types),
    )


def _columns(lookup: Lookup, spec: TensorSpec, where: str) -> tuple[int, int]:
    """Return which elements of a row hold the ids."""
    sizes = spec.shape[1:] if lookup.side == "row" else spec.shape
    length = prod(size for size in sizes if size != -1)
    begin, end = (0, length) if lookup.ids.columns is None else lookup.ids.columns
    if -1 in sizes or end > length or end - begin != lookup.max_length:
        raise InvalidInput(
            f"{where}: elements {begin} to {end} of a row of {spec.name!r} {spec.shape_text} are "
            f"not the {lookup.max_length} ids that it looks up"
        )
    return begin, end
