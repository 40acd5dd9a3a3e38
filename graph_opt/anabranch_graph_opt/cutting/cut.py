"""The cut: lookups leave the graph, their rows come in through buffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from onnx_ir.passes import common as library

from anabranch_graph_opt.bags.bodies import remove_unused
from anabranch_graph_opt.bags.found_bags import Bag
from anabranch_graph_opt.cutting.buffer_views import BufferViewsPass
from anabranch_graph_opt.cutting.column_order import in_column_order
from anabranch_graph_opt.cutting.poolings import fitting_bags, poolings, ragged_poolings
from anabranch_graph_opt.cutting.preludes import extract_prelude
from anabranch_graph_opt.cutting.requests import CutRequest, Pooling
from anabranch_graph_opt.cutting.table_rows import ELEMENTS_DIFFER, of_table_rows
from anabranch_graph_opt.graph_constants import integers
from anabranch_graph_opt.optimized import TableSource
from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.id_grids import GridFinder, IdGrid
from anabranch_graph_opt.row_axes import RowAxes
from anabranch_wire.lookups import Ids, Lookup, Offsets, Output, Side, Values
from anabranch_wire.plan import Buffer

__all__ = ["Cut", "cut_lookups"]

_NAMES: Final[Mapping[str, str]] = {"row": "ab_rows", "user": "ab_user", "shared": "ab_shared"}
"""Buffers of rows, of users, and of what all rows of a request share."""
_MAX_BAG: Final = 2**20
"""Ids of one bag of varying length: what a lookup takes at most."""
_NO_BAGS: Final[Mapping[ir.Value, Bag]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A graph without its lookups.

    Attributes:
        dense: what is left; the model that was given, changed.
        prelude: what makes ids that the plan cannot say; None where there are none.
        tables: that lookups read.
        buffers: inputs of `dense` that they fill.
        lookups: one for each run of ids.
        found: all lookups that were found, with the reasons of those that stay.
        sources: for each of `found`, where its ids come from, in words.
    """

    dense: ir.Model
    prelude: ir.Model | None
    tables: tuple[TableSource, ...]
    buffers: tuple[Buffer, ...]
    lookups: tuple[Lookup, ...]
    found: tuple[FoundLookup, ...]
    sources: tuple[str, ...]


def cut_lookups(
    model: ir.Model,
    found: Sequence[FoundLookup],
    axes: RowAxes,
    users: frozenset[str] = frozenset(),
    bags: Mapping[ir.Value, Bag] = _NO_BAGS,
) -> Cut:
    """Cut lookups out of a normalised model, which is changed.

    Args:
        model: in normal form.
        found: its lookups; those without a reason to stay are cut where the plan or a prelude can
            say their ids.
        axes: what axis 0 of the inputs counts.
        users: inputs that hold one user for many rows: lookups of those alone get a buffer of their
            own, which has rows as all the others have in the graph that is returned.
        bags: rows of lookups -> what they are pooled to. What the plan can say of them is pooled by
            the lookup, others stay sequences.
    """
    grids, pooled, prelude, refused = _grids(model, found, axes, users, bags)
    judged = tuple(
        replace(each, reason=refused[each]) if each in refused else each for each in found
    )
    requests = [
        CutRequest(each, grids[each], users, pooled.get(each)) for each in judged if each.is_cut
    ]
    ordered = in_column_order(model.graph, requests)
    tables = {request.table: index for index, request in enumerate(_first_of_table(ordered))}
    buffers, places = _buffers(model.graph, ordered, axes)
    lengths = _row_lengths(model.graph)
    lookups = [
        lookup
        for request in ordered
        for lookup in _lookups(request, tables[request.table], *places[request], lengths)
    ]
    names = [buffer.name for buffer in buffers]
    sources = {value.name: value for value in model.graph.inputs}
    for request in ordered:
        index, column = places[request]
        _replace(model.graph, request, sources[names[index]], buffers[index].columns, column)
    remove_unused(model.graph)
    for each in (BufferViewsPass(names), library.RemoveUnusedNodesPass()):
        model = each(model).model
    for value in [value for value in model.graph.inputs if not _is_used(value)]:
        if value.name not in names:
            model.graph.inputs.remove(value)
    return Cut(
        dense=model,
        prelude=prelude,
        tables=tuple(_table(value) for value in tables),
        buffers=tuple(buffers),
        lookups=tuple(lookups),
        found=judged,
        sources=tuple(_words(grids.get(each), pooled.get(each)) for each in found),
    )


def _grids(
    model: ir.Model,
    found: Sequence[FoundLookup],
    axes: RowAxes,
    users: frozenset[str],
    bags: Mapping[ir.Value, Bag],
) -> tuple[
    dict[FoundLookup, IdGrid],
    dict[FoundLookup, Pooling],
    ir.Model | None,
    dict[FoundLookup, str],
]:
    """Return grids of lookups and how they pool, a prelude for those that need it, and refusals."""
    finder = GridFinder(model, axes)
    followed: dict[ir.Value, IdGrid] = {}
    computed: dict[ir.Value, None] = {}
    grids: dict[FoundLookup, IdGrid] = {}
    refused: dict[FoundLookup, str] = {}
    ragged = ragged_poolings(bags, found)
    for each in found:
        if not each.is_cut or each in ragged or each.ids in followed or each.ids in computed:
            continue
        grid = finder.find(each.ids)
        if grid is not None:
            followed[each.ids] = grid
        elif each.form == "gather_elements":  # whether columns are equal is not known of numbers
            refused[each] = ELEMENTS_DIFFER
        else:
            computed[each.ids] = None
    fitting = fitting_bags(bags, found, followed, finder, users)
    joined = [ids for ids in fitting.joined if ids not in computed]
    prelude = extract_prelude(model, [*computed, *joined], axes.kinds, fitting.computed)
    for each in found:
        if not each.is_cut or each in refused or each in ragged:
            continue
        if each.ids in prelude.refused and each.ids not in followed:
            refused[each] = prelude.refused[each.ids]
            continue
        grid = followed.get(each.ids)
        if grid is None or (fitting.is_joined(each) and each.ids in prelude.grids):
            grid = prelude.grids[each.ids]
        narrowed = of_table_rows(each, grid)
        if isinstance(narrowed, str):
            refused[each] = narrowed
        else:
            grids[each] = narrowed
    pooled = poolings(fitting, grids, prelude.grids)
    for each, (grid, pooling) in ragged.items():
        grids[each], pooled[each] = grid, pooling
    return grids, pooled, prelude.model, refused


def _first_of_table(requests: Sequence[CutRequest]) -> list[CutRequest]:
    first: dict[ir.Value, CutRequest] = {}
    for request in requests:
        first.setdefault(request.table, request)
    return list(first.values())


def _buffers(
    graph: ir.Graph, requests: Sequence[CutRequest], axes: RowAxes
) -> tuple[list[Buffer], dict[CutRequest, tuple[int, int]]]:
    """Add an input for each kind of buffer, and give every lookup its columns."""
    kinds: dict[tuple[str, bool], int] = {}
    widths: list[int] = []
    places: dict[CutRequest, tuple[int, int]] = {}
    for request in requests:
        kind: str = "shared" if request.is_shared else request.side
        index = kinds.setdefault((kind, request.is_half), len(kinds))
        if index == len(widths):
            widths.append(0)
        places[request] = (index, widths[index])
        widths[index] += request.columns
    taken = {str(value.name) for value in graph.inputs}
    rows = _rows_symbol(graph, axes)
    buffers = []
    for (kind, is_half), width in zip(kinds, widths, strict=True):
        name = _NAMES[kind] + ("_f16" if is_half else "")
        side: Side = "row" if kind == "row" else "user"
        while name in taken:
            name += "_"
        buffers.append(
            Buffer(name=name, side=side, dtype="f16" if is_half else "f32", columns=width)
        )
        dtype = ir.DataType.FLOAT16 if is_half else ir.DataType.FLOAT
        graph.inputs.append(
            ir.Value(
                name=name,
                type=ir.TensorType(dtype),
                shape=ir.Shape([1 if kind == "shared" else rows, width]),
            )
        )
    return buffers, places


def _rows_symbol(graph: ir.Graph, axes: RowAxes) -> str:
    """Return the name that inputs give to the number of rows, so that buffers have the same."""
    for value in graph.inputs:
        has_rows = value.shape and axes.kinds[str(value.name)].kind == "rows"
        first = value.shape[0] if value.shape and has_rows else None
        if isinstance(first, ir.SymbolicDim) and first.value is not None:
            return first.value
    return "batch"


def _lookups(
    request: CutRequest, table: int, buffer: int, column: int, lengths: Mapping[str, int]
) -> list[Lookup]:
    lookups = []
    pooling = request.pooling
    offsets = "" if pooling is None else pooling.offsets
    for run in request.grid.runs:
        is_whole = run.columns == (0, lengths.get(run.source))
        lookups.append(
            Lookup(
                table=table,
                side=request.side,
                ids=Ids(
                    input=run.source,
                    columns=None if is_whole else run.columns,
                    cast=run.cast,
                    add=run.add,
                ),
                combiner="none" if pooling is None else pooling.combiner,
                lengths=Offsets(input=offsets) if offsets else None,
                weights=None if pooling is None else _weights(pooling, lengths),
                max_length=_MAX_BAG if offsets else run.length,
                output=Output(buffer=buffer, column=column),
            )
        )
        column += run.length * request.dim
    return lookups


def _weights(pooling: Pooling, lengths: Mapping[str, int]) -> Values | None:
    run = pooling.weights
    if run is None:
        return None
    is_whole = run.columns == (0, lengths.get(run.source, run.length))
    return Values(input=run.source, columns=None if is_whole else run.columns)


def _row_lengths(graph: ir.Graph) -> dict[str, int]:
    """Return how many elements a row of each graph input has."""
    lengths: dict[str, int] = {}
    for value in graph.inputs:
        length = 1
        for size in (value.shape or ())[1:]:
            length *= size if isinstance(size, int) else 0
        lengths[str(value.name)] = length
    return lengths


def _replace(
    graph: ir.Graph, request: CutRequest, source: ir.Value, width: int, column: int
) -> None:
    """Read what was looked up out of a buffer, in the shape in which the graph had it."""
    old = request.output
    node = old.producer()
    assert node is not None
    grid, dim = request.grid, request.dim
    new: list[ir.Node] = []

    def add(operator: str, inputs: Sequence[ir.Value], **attributes: object) -> ir.Value:
        # onnx-ir takes any value that an attribute can have, and declares fewer.
        made = ir.node(operator, list(inputs), attributes)  # type: ignore[arg-type]
        made.outputs[0].name = f"{old.name}_ab{len(new)}"
        new.append(made)
        return made.outputs[0]

    value = source
    end = column + request.columns
    if (column, end) != (0, width):
        bounds = [integers(graph, [each]) for each in (column, end, 1)]
        value = add("Slice", [value, *bounds])
    has_rows = grid.row_axis is not None
    inner = (*grid.shape, dim) if request.pooling is None else request.pooling.shape
    shape = [0 if has_rows else 1, *inner]
    if len(shape) != 2 or not has_rows:
        value = add("Reshape", [value, integers(graph, shape if has_rows else shape[1:])])
    if grid.row_axis:
        rank = len(shape)
        order = [*range(1, grid.row_axis + 1), 0, *range(grid.row_axis + 1, rank)]
        value = add("Transpose", [value], perm=order)
    if grid.block > 1 and request.pooling is None:
        assert grid.row_axis is not None
        at = grid.row_axis
        merged = [*grid.shape[:at], -1, *grid.shape[at + 1 :], dim]
        value = add("Reshape", [value, integers(graph, merged)])
    if request.table.dtype is ir.DataType.BFLOAT16:
        value = add("Cast", [value], to=ir.DataType.BFLOAT16)
    is_output = old.is_graph_output()
    if is_output and not new:
        value = add("Identity", [value])
    graph.insert_before(node, new)
    if new:
        value.type, value.shape = old.type, old.shape
    ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    if is_output:
        value.name = old.name


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _table(value: ir.Value) -> TableSource:
    assert value.const_value is not None
    return TableSource(str(value.name), value.const_value)


def _words(grid: IdGrid | None, pooling: Pooling | None) -> str:
    if grid is None:
        return ""
    words = []
    for run in grid.runs:
        shift = f" + {run.add}" if run.add > 0 else f" - {-run.add}" if run.add else ""
        words.append(f"{run.source}[{run.columns[0]}:{run.columns[1]}]{shift}")
    joined = ", ".join(words)
    if pooling is None:
        return joined
    factors = "" if pooling.weights is None else f", weights {pooling.weights.source}"
    if pooling.offsets:
        joined = f"{grid.runs[0].source}, from {pooling.offsets} on"
    return f"{pooling.combiner} of {joined}{factors}"
