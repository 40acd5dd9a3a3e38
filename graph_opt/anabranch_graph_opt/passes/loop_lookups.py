"""Takes lookups out of the bodies of loops: all ids at once before, a slice of rows inside.

TorchScript writes an EmbeddingBag as a Loop whose body slices the ids of one bag and looks those
up. `Gather(table, Slice(ids, a, b))` becomes `Slice(Gather(table, ids), a, b)` with the Gather
outside. It looks up ids that no bag covers too: such an id outside of the table now fails.
"""

import onnx_ir as ir

from anabranch_graph_opt.graph_constants import integers

__all__ = ["LoopLookupsPass"]


class LoopLookupsPass(ir.passes.InPlacePass):
    """Moves lookups of sliced ids in front of the loop of the main graph that they are in."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place."""
        changed = False
        for loop in list(model.graph):
            if loop.op_type != "Loop" or loop.domain not in ("", "ai.onnx"):
                continue
            body = loop.attributes["body"].as_graph()
            for node in list(body):
                if _move(node, loop, body, model.graph):
                    changed = True
        return ir.passes.PassResult(model, changed)


def _move(node: ir.Node, loop: ir.Node, body: ir.Graph, main: ir.Graph) -> bool:
    """Move one lookup out, if it is one of sliced ids; whether it was."""
    if node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 0:
        return False
    table, sliced = node.inputs
    slicing = None if sliced is None else sliced.producer()
    if table is None or table.const_value is None or len(table.const_value.shape) != 2:
        return False
    if slicing is None or slicing.op_type != "Slice" or slicing.graph is not body:
        return False
    ids, *bounds = slicing.inputs
    if ids is None or not _is_outside(ids, body) or len(ids.shape or ()) != 1 or len(bounds) > 3:
        return False
    old = node.outputs[0]
    whole = ir.node("Gather", [table, ids], {"axis": 0})
    whole.outputs[0].name = f"{old.name}_all"
    whole.outputs[0].type = old.type
    assert ids.shape is not None  # it has one axis
    whole.outputs[0].shape = ir.Shape([ids.shape[0], table.const_value.shape.numpy()[1]])
    main.insert_before(loop, whole)
    part = ir.node("Slice", [whole.outputs[0], *bounds[:2], integers(main, [0])])
    part.outputs[0].name = f"{old.name}_bag"
    part.outputs[0].type, part.outputs[0].shape = old.type, old.shape
    body.insert_before(node, part)
    ir.convenience.replace_all_uses_with(old, part.outputs[0], replace_graph_outputs=True)
    body.remove(node, safe=True)
    return True


def _is_outside(value: ir.Value, body: ir.Graph) -> bool:
    producer = value.producer()
    return value.graph is not body if producer is None else producer.graph is not body
