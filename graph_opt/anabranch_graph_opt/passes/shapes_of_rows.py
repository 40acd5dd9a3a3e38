"""Takes shapes of looked-up rows from the ids that they were looked up by.

`Shape(Gather(table, ids))` becomes `Concat(Shape(ids), [dim])`. Exporters build masks and positions
from the shape of embeddings; without this, such ids seem to need the rows.
"""

import onnx_ir as ir

from anabranch_graph_opt.graph_constants import integers

__all__ = ["ShapesOfRowsPass"]


class ShapesOfRowsPass(ir.passes.InPlacePass):
    """Rewrites the shapes of rows that Gather reads from a constant of rank 2 on axis 0."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place."""
        changed = False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.op_type != "Shape" or node.domain not in ("", "ai.onnx"):
                continue
            lookup = node.inputs[0].producer() if node.inputs[0] is not None else None
            if lookup is None or not _reads_table(lookup):
                continue
            _rewrite(node, lookup, model.graph)
            changed = True
        return ir.passes.PassResult(model, changed)


def _reads_table(node: ir.Node) -> bool:
    if node.op_type != "Gather" or node.domain not in ("", "ai.onnx"):
        return False
    table = node.inputs[0]
    return (
        node.attributes.get_int("axis", 0) == 0
        and table is not None
        and table.const_value is not None
        and len(table.const_value.shape) == 2
    )


def _rewrite(node: ir.Node, lookup: ir.Node, main: ir.Graph) -> None:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    table, ids = lookup.inputs
    assert table is not None
    assert table.const_value is not None
    old = node.outputs[0]
    of_ids = ir.node("Shape", [ids])
    of_ids.outputs[0].name = f"{old.name}_ids"
    dim = integers(main, [table.const_value.shape.numpy()[1]])
    new = [of_ids, ir.node("Concat", [of_ids.outputs[0], dim], {"axis": 0})]
    if "start" in node.attributes or "end" in node.attributes:
        new[-1].outputs[0].name = f"{old.name}_whole"
        begin = node.attributes.get_int("start", 0)
        end = node.attributes.get_int("end", 2**31)
        bounds = [integers(main, [number]) for number in (begin, end)]
        new.append(ir.node("Slice", [new[-1].outputs[0], *bounds]))
    last = new[-1].outputs[0]
    last.type, last.shape = old.type, old.shape
    graph.insert_before(node, new)
    ir.convenience.replace_all_uses_with(old, last, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    last.name = old.name
