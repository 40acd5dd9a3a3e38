"""A model whose lookups were cut out of its graph: the same inputs and outputs, other parts inside.

Callers send the inputs of the original. Rows of tables are looked up by elements of those inputs,
or by what a prelude makes of them, and fill buffers that the dense graph takes instead of tables.
So it is with the weights of ids, where rows are pooled.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from anabranch_runtime.store import IdType
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Lookup, Values
from anabranch_wire.plan import Plan
from anabranch_wire.tensors import Datatype, TensorSpec

if TYPE_CHECKING:
    from anabranch_runtime.models import DenseModel

__all__ = ["USER_INDEX", "CutModel", "IdRead", "UserPart", "cut_model"]

USER_INDEX: Final = "ab_user_index"
"""Input of a dense graph with a user side: int64 [rows], the user of each row."""

_ID_TYPES: Final[Mapping[Datatype, IdType]] = MappingProxyType(
    {"INT64": "int64", "INT32": "int32", "FP32": "float32", "FP64": "float64"}
)


@dataclass(frozen=True, slots=True)
class IdRead:
    """Where one lookup reads its ids, or the weights of its ids.

    Attributes:
        of_prelude: whether in an output of the prelude, else in an input of the original.
        index: of that tensor.
        columns: half-open range of the elements of one row, in row-major order.
    """

    of_prelude: bool
    index: int
    columns: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class UserPart:
    """What runs once per user of a batch.

    Attributes:
        graph: takes inputs of the original and user buffers, gives inputs of the dense graph.
        inputs: positions of the original's inputs that hold a user, rising.
        takes: per input of `graph` the position of an input of the original, or None for a buffer.
        buffers: per buffer of the plan its input of `graph`; None where it is the dense graph's.
        gives: per output of `graph` the input of the dense graph that it is.
        index: input of the dense graph that says which user a row has.
    """

    graph: "DenseModel"
    inputs: tuple[int, ...]
    takes: tuple[int | None, ...]
    buffers: tuple[int | None, ...]
    gives: tuple[int, ...]
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class CutModel:
    """What runs in place of an original graph; `cut_model` makes it.

    Attributes:
        plan: its lookups.
        inputs: of the original.
        dense: the graph that is left; what is known about rows is said of the original.
        prelude: makes ids and weights; None where the plan says all.
        user: what runs once per user; None where all runs per row.
        passed: per input of the dense graph the input of the original that it is; None for others.
        buffers: per buffer of the plan the input of the dense graph that it is; None for those of
            the user's graph.
        prelude_inputs: per input of the prelude the input of the original that it is.
        reads: ids, per lookup of the plan.
        weights: of those ids, float32; None where all are 1.
        bags: per lookup the input that cuts its ids into bags; None where all have one length.
        id_types: name of an input or of a prelude's output -> type of the ids in it.
    """

    plan: Plan
    inputs: tuple[TensorSpec, ...]
    dense: "DenseModel"
    prelude: "DenseModel | None"
    user: UserPart | None
    passed: tuple[int | None, ...]
    buffers: tuple[int | None, ...]
    prelude_inputs: tuple[int, ...]
    reads: tuple[IdRead, ...]
    weights: tuple[IdRead | None, ...]
    bags: tuple[int | None, ...]
    id_types: Mapping[str, IdType]

    @property
    def user_inputs(self) -> tuple[int, ...]:
        """Positions of the original's inputs that hold a user."""
        return () if self.user is None else self.user.inputs


def cut_model(
    plan: Plan,
    inputs: Sequence[TensorSpec],
    dense: "DenseModel",
    prelude: "DenseModel | None" = None,
    user: "DenseModel | None" = None,
    users: Collection[str] = (),
) -> CutModel:
    """Tie a plan to the graphs that it belongs to.

    Args:
        plan: of the version.
        inputs: of the original.
        dense: the graph that is left.
        prelude: what makes ids; None where the plan names none.
        user: what runs once per user; None where the plan names none.
        users: names of the inputs that hold a user; what `user` was split off by.

    Raises:
        InvalidInput: plan and graphs contradict each other.
        Unsupported: ids, weights or bags have types that are not looked up.
    """
    for what, path, graph in (
        ("prelude", plan.graphs.prelude, prelude),
        ("user graph", plan.graphs.user, user),
    ):
        if (path is None) != (graph is None):
            raise InvalidInput(f"plan.json: a {what} is named, but there is none, or the reverse")
    if any(lookup.combine is not None for lookup in plan.lookups):
        raise Unsupported("plan.json: lookups of a graph's own tables write columns of their own")
    positions = {spec.name: index for index, spec in enumerate(inputs)}
    dense_names = [spec.name for spec in dense.inputs]
    part = None if user is None else _user_part(plan, positions, dense_names, user, users)
    buffers = tuple(
        dense_names.index(buffer.name) if buffer.name in dense_names else None
        for buffer in plan.buffers
    )
    for index, buffer in enumerate(plan.buffers):
        if buffers[index] is None and (part is None or part.buffers[index] is None):
            raise InvalidInput(f"plan.json: buffer {buffer.name!r} is no input of a graph")
    taken = () if prelude is None else prelude.inputs
    for spec in taken:
        if spec.name not in positions:
            raise InvalidInput(f"plan.json: the prelude takes {spec.name!r}, which is no input")
    made = () if prelude is None else prelude.outputs
    reads, types = _reads(plan, inputs, made)
    bags = tuple(_bags(plan, inputs, types))
    return CutModel(
        plan=plan,
        inputs=tuple(inputs),
        dense=dense,
        prelude=prelude,
        user=part,
        passed=_passed(plan, positions, dense_names, part),
        buffers=buffers,
        prelude_inputs=tuple(positions[spec.name] for spec in taken),
        reads=reads,
        weights=tuple(_weights(plan, inputs, made)),
        bags=bags,
        id_types=MappingProxyType(types),
    )


def _user_part(
    plan: Plan,
    positions: Mapping[str, int],
    dense_names: Sequence[str],
    user: "DenseModel",
    users: Collection[str],
) -> UserPart:
    names = [spec.name for spec in user.inputs]
    buffers = [buffer.name for buffer in plan.buffers]
    for name in names:
        if name not in buffers and (name not in positions or name not in users):
            raise InvalidInput(f"plan.json: the user graph takes {name!r}, which holds no user")
    given = [spec.name for spec in user.outputs]
    missing = [name for name in (*given, USER_INDEX) if name not in dense_names]
    if missing:
        raise InvalidInput(f"plan.json: the dense graph does not take {missing[0]!r}")
    return UserPart(
        graph=user,
        inputs=tuple(sorted(positions[name] for name in users)),
        takes=tuple(None if name in buffers else positions[name] for name in names),
        buffers=tuple(names.index(name) if name in names else None for name in buffers),
        gives=tuple(dense_names.index(name) for name in given),
        index=dense_names.index(USER_INDEX),
    )


def _passed(
    plan: Plan,
    positions: Mapping[str, int],
    dense_names: Sequence[str],
    part: UserPart | None,
) -> tuple[int | None, ...]:
    buffers = {buffer.name for buffer in plan.buffers}
    made = set() if part is None else {*part.gives, part.index}
    passed: list[int | None] = []
    for index, name in enumerate(dense_names):
        if name in buffers or index in made:
            passed.append(None)
        elif name in plan.pass_through and name in positions:
            passed.append(positions[name])
        else:
            raise InvalidInput(
                f"plan.json: input {name!r} of the dense graph is neither a buffer nor passed "
                "through"
            )
    return tuple(passed)


def _reads(
    plan: Plan, inputs: Sequence[TensorSpec], made: Sequence[TensorSpec]
) -> tuple[tuple[IdRead, ...], dict[str, IdType]]:
    """Return where lookups read their ids, and of which type those are."""
    reads: list[IdRead] = []
    types: dict[str, IdType] = {}
    for index, lookup in enumerate(plan.lookups):
        where = f"plan.json: lookups[{index}]"
        name = lookup.ids.input
        read, spec = _read(lookup.ids, lookup, inputs, made, where)
        if spec.datatype not in _ID_TYPES:
            raise Unsupported(f"{where}: ids of type {spec.datatype} in {name!r} are not looked up")
        types[name] = _ID_TYPES[spec.datatype]
        reads.append(read)
    return tuple(reads), types


def _bags(
    plan: Plan, inputs: Sequence[TensorSpec], types: dict[str, IdType]
) -> Iterator[int | None]:
    """Yield which input cuts the ids of a lookup into bags; its type is added to `types`."""
    positions = {spec.name: index for index, spec in enumerate(inputs)}
    for index, lookup in enumerate(plan.lookups):
        where = f"plan.json: lookups[{index}].lengths"
        if lookup.lengths is None:
            yield None
            continue
        name = lookup.lengths.input
        if name not in positions:
            raise InvalidInput(f"{where}: there is no input {name!r}")
        spec = inputs[positions[name]]
        if spec.datatype not in ("INT64", "INT32") or spec.shape != (-1,):
            raise Unsupported(
                f"{where}: {spec.datatype} {spec.shape_text} in {name!r}; bags are told by one "
                "INT64 or INT32 for each"
            )
        types[name] = _ID_TYPES[spec.datatype]
        yield positions[name]


def _weights(
    plan: Plan, inputs: Sequence[TensorSpec], made: Sequence[TensorSpec]
) -> Iterator[IdRead | None]:
    """Yield where lookups read the weights of their ids."""
    for index, lookup in enumerate(plan.lookups):
        where = f"plan.json: lookups[{index}].weights"
        if lookup.weights is None:
            yield None
            continue
        read, spec = _read(lookup.weights, lookup, inputs, made, where)
        if spec.datatype != "FP32":
            raise Unsupported(f"{where}: {spec.datatype} in {spec.name!r}; weights are FP32")
        yield read


def _read(
    values: Values,
    lookup: Lookup,
    inputs: Sequence[TensorSpec],
    made: Sequence[TensorSpec],
    where: str,
) -> tuple[IdRead, TensorSpec]:
    """Return where a lookup reads, and what is said of that tensor."""
    makers = () if lookup.lengths is not None else made
    for of_prelude, specs in ((True, makers), (False, inputs)):
        for index, spec in enumerate(specs):
            if spec.name == values.input:
                columns = _columns(values, lookup, spec, where)
                return IdRead(of_prelude, index, columns), spec
    raise InvalidInput(f"{where}: there is no input {values.input!r}")


def _columns(values: Values, lookup: Lookup, spec: TensorSpec, where: str) -> tuple[int, int]:
    """Return which elements of a row are read; a tensor that all rows share is one row."""
    if lookup.lengths is not None:
        if spec.shape != (-1,) or values.columns is not None:
            raise InvalidInput(f"{where}: {spec.name!r} {spec.shape_text} is not one number an id")
        return 0, 1
    has_rows = lookup.side == "row" or spec.shape[:1] == (-1,)
    sizes = spec.shape[1:] if has_rows else spec.shape
    length = prod(size for size in sizes if size != -1)
    begin, end = (0, length) if values.columns is None else values.columns
    if -1 in sizes or end > length or end - begin != lookup.max_length:
        raise InvalidInput(
            f"{where}: elements {begin} to {end} of a row of {spec.name!r} {spec.shape_text} are "
            f"not the {lookup.max_length} ids that it looks up"
        )
    return begin, end
