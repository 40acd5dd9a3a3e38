"""Finds lookups by data flow: a constant table, and row numbers that come from a caller's values.

Walking back from the row numbers, everything on the way has to be what ids are made of: integer
arithmetic and moving elements about. What passes through a layer of the network belongs to the
dense part; what only depends on the shape of inputs is a position; what depends on no input at all
is a constant.
"""

from collections.abc import Mapping
from typing import Any, Final

import onnx_ir as ir

from anabranch_graph_opt.placement.found import FoundLookup, LookupForm
from anabranch_graph_opt.placement.roots import CONSTANT, Roots, find_roots
from anabranch_graph_opt.placement.tables import is_table

__all__ = ["find_lookups"]

_MAX_ROWS: Final = 2**31 - 1
_MAX_DIM: Final = 1024


def find_lookups(model: ir.Model, min_table_bytes: int) -> tuple[FoundLookup, ...]:
    """Return every lookup of a normalised model, in the order of its nodes.

    A lookup of ids that are not ids of a caller, in a table that is too small, or in a place that
    the plan cannot reach has a reason; one in a table that is none (rank other than 2, a single
    row, integers) is not listed.

    Args:
        model: in normal form.
        min_table_bytes: smaller tables stay.
    """
    owners = _body_owners(model.graph)
    roots = find_roots(model.graph)
    found = []
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        try:
            reading = _reading(node)
        except TypeError:  # an attribute of another type: no backend runs such a node
            continue
        if reading is None:
            continue
        form, table, ids = reading
        reason = _ids_reason(roots.get(ids, CONSTANT)) or _place_reason(
            node, form, table, ids, owners, min_table_bytes
        )
        found.append(FoundLookup(node, form, table, ids, node.outputs[0], reason))
    return tuple(found)


def _reading(node: ir.Node) -> tuple[LookupForm, ir.Value, ir.Value] | None:
    """Return how a node reads rows of a table; None where it does not."""
    if node.domain not in ("", "ai.onnx") or len(node.inputs) < 2:
        return None
    table, ids = node.inputs[:2]
    if table is None or ids is None or not is_table(table):
        return None
    axis = node.attributes.get_int("axis", 0)
    if node.op_type == "Gather" and axis in (0, -2):
        return "gather", table, ids
    if node.op_type == "GatherND" and node.attributes.get_int("batch_dims", 0) == 0:
        if ids.shape is not None and len(ids.shape) > 0 and ids.shape[-1] == 1:
            return "gather_nd", table, ids
        return None
    if node.op_type == "GatherElements" and axis in (0, -2):
        return "gather_elements", table, ids
    return None


def _ids_reason(roots: Roots) -> str:
    """Say why ids are none of a caller; "" where they are."""
    if roots.foreign is not None:
        return (
            f"its ids are computed by {_named(roots.foreign)}, which is no arithmetic of ids: they "
            "are the work of the dense part"
        )
    if not roots.by_value:
        if roots.by_shape:
            return (
                "its ids depend on the shape of inputs only: a table of positions, which is read "
                "whole each time"
            )
        return "its ids are constant: the same rows are read each time, as with any weight"
    if roots.table is not None:
        return (
            f"its ids come out of another float table ({roots.table.name!r}); store such side "
            "features as integers, or send them with the request"
        )
    return ""


def _place_reason(
    node: ir.Node,
    form: LookupForm,
    table: ir.Value,
    ids: ir.Value,
    owners: "_Owners",
    min_table_bytes: int,
) -> str:
    """Say why a lookup of a caller's ids stays all the same; "" where it leaves."""
    tensor = table.const_value
    assert tensor is not None
    owner = owners.get(node.graph)
    if owner is not None:
        return (
            f"it is inside the body of {_named(owner)}; export the model without loops or "
            "branches around embeddings, such as with torch.nn.Embedding on padded ids"
        )
    if tensor.nbytes < min_table_bytes:
        return f"its table has {tensor.nbytes} bytes, less than min_table_bytes ({min_table_bytes})"
    if tensor.dtype is ir.DataType.DOUBLE:
        return "its table holds float64, which rows of a store do not; export it as float32"
    rows, dim = tensor.shape.numpy()
    if rows > _MAX_ROWS:
        return f"its table has {rows} rows; a table of a store has {_MAX_ROWS} at most"
    if dim > _MAX_DIM:
        return f"its rows have {dim} numbers; rows of a store have {_MAX_DIM} at most"
    if form == "gather_elements" and len(ids.shape or ()) != 2:
        return "it reads single elements of the table instead of rows"
    return ""


_Owners = Mapping[Any, ir.Node]
"""Body of control flow -> the node that it belongs to."""


def _body_owners(graph: ir.Graph) -> _Owners:
    return {
        attribute.as_graph(): node
        for node in ir.traversal.RecursiveGraphIterator(graph)
        for attribute in node.attributes.values()
        if attribute.type is ir.AttributeType.GRAPH
    }


def _named(node: ir.Node) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node {node.op_type}"
