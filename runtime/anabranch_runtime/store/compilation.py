"""From plan.json to a lookup plan over a generation."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from anabranch_runtime.store.features import (
    FeatureLookup,
    IdType,
    LookupBuffer,
    MissingPolicy,
)
from anabranch_runtime.store.generation import Generation
from anabranch_runtime.store.lookup_plan import LookupPlan
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Ids, Lookup, Offsets
from anabranch_wire.missing import FallbackKey, Missing, Original, Refuse, Vector, Zeros
from anabranch_wire.plan import Plan, PlanTable

__all__ = ["compile_plan"]

_NOTHING: Final[Mapping[str, IdType]] = MappingProxyType({})


def compile_plan(
    plan: Plan,
    generation: Generation,
    padding: Mapping[str, int] = MappingProxyType({}),
    *,
    types: Mapping[str, IdType] = _NOTHING,
) -> LookupPlan:
    """Compile the lookups of a plan, in its order, over a generation of its tables.

    Args:
        plan: says which rows go where.
        generation: has the plan's tables, in any order.
        padding: table name -> key that contributes nothing; over what the plan says.
        types: input name -> type of the ids, lengths or offsets that it brings. Where left out,
            ids that are cast are float32, all others int64.

    Raises:
        InvalidInput: the generation lacks a table or has it in another form, or lookups contradict
            their tables; says which.
    """
    numbers = {table.name: number for number, table in enumerate(generation.tables)}
    for table in plan.tables:
        _check_table(table, numbers, generation)
    lookups = []
    for lookup in plan.lookups:
        table = plan.tables[lookup.table]
        key = padding.get(table.name, table.padding_key)
        lookups.append(_feature(lookup, table, numbers[table.name], key, types))
    buffers = [
        LookupBuffer(columns=buffer.columns, type=buffer.dtype, side=buffer.side)
        for buffer in plan.buffers
    ]
    return LookupPlan(generation, lookups, buffers)


def _feature(
    lookup: Lookup,
    table: PlanTable,
    number: int,
    padding_key: int | None,
    types: Mapping[str, IdType],
) -> FeatureLookup:
    missing, row, key = _missing(table.missing)
    bag = lookup.lengths
    cast = lookup.ids.cast == "truncate"
    return FeatureLookup(
        feature=_name(lookup.ids),
        table=number,
        side=lookup.side,
        id_type=types.get(lookup.ids.input, "float32" if cast else "int64"),
        add=lookup.ids.add,
        combiner=lookup.combiner,
        bag="fixed" if bag is None else "offsets" if isinstance(bag, Offsets) else "lengths",
        bag_type="int64" if bag is None else types.get(bag.input, "int64"),
        max_length=lookup.max_length,
        weighted=lookup.weights is not None,
        padding_key=padding_key,
        missing=missing,
        missing_row=row,
        missing_key=key,
        buffer=lookup.output.buffer,
        column=lookup.output.column,
    )


def _name(ids: Ids) -> str:
    """Name of a feature in messages: the input, and which of its columns."""
    if ids.columns is None:
        return ids.input
    begin, end = ids.columns
    return f"{ids.input}[{begin}]" if end == begin + 1 else f"{ids.input}[{begin}:{end}]"


def _missing(policy: Missing) -> tuple[MissingPolicy, tuple[float, ...], int]:
    match policy:
        case Original():
            return "original", (), 0
        case Zeros():
            return "zeros", (), 0
        case Vector():
            return "vector", policy.value, 0
        case FallbackKey():
            return "key", (), policy.key
        case Refuse():
            return "error", (), 0


def _check_table(table: PlanTable, numbers: Mapping[str, int], generation: Generation) -> None:
    number = numbers.get(table.name)
    if number is None:
        raise InvalidInput(f"table {table.name!r} of the plan is not in the store")
    found = generation.tables[number]
    for what, expected, seen in (
        ("dim", table.dim, found.dim),
        ("dtype", table.dtype, found.row_type),
        ("keys", table.keys, found.keys),
    ):
        if expected != seen:
            raise InvalidInput(
                f"table {table.name!r}: the plan expects {what} {expected}, the store has {seen}"
            )
