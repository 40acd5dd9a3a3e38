"""Sizes of axes that shape inference left open, but the walk over rows knows.

Exporters reshape to `(batch, -1)` with a batch size out of another shape: what is left of the row
then is one number, whatever the batch.
"""

import onnx_ir as ir

from anabranch_graph_opt.flow import Axis, Factor, Flow, Mixed, State, axis_size, plain
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_walk import RowWalk
from anabranch_graph_opt.sizes import Size

__all__ = ["KnownSizesPass", "input_claims"]


class KnownSizesPass(ir.passes.InPlacePass):
    """Writes sizes that hold for any number of rows into the shapes of values.

    Requires rows on axis 0 of all inputs. Changes nothing but shapes.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fill in place."""
        facts = Facts()
        walk = RowWalk(model, facts)
        walk.run(input_claims(model, frozenset(), facts))
        changed = False
        for node in model.graph:
            for value in node.outputs:
                state = walk.state(value)
                if isinstance(state, Flow):
                    changed |= _fill(value, state)
        return ir.passes.PassResult(model, changed)


def input_claims(model: ir.Model, shared: frozenset[str], facts: Facts) -> dict[str, State]:
    """Return what is known about the inputs of a graph whose lookups are cut.

    Args:
        model: with rows on axis 0 of its inputs.
        shared: inputs that all rows of a request share, which have none.
        facts: of the walk that the claims are for.
    """
    claims: dict[str, State] = {}
    for value in model.graph.inputs:
        name = str(value.name)
        if value.shape is None:
            claims[name] = Mixed(f"input {name!r} has no shape")
            continue
        axes: list[Axis] = []
        for index, size in enumerate(value.shape):
            if index == 0 and name not in shared:
                axes.append((Factor(Size.of(facts.rows.atom), facts.rows),))
            elif isinstance(size, int):
                axes.append(plain(size))
            else:
                axes.append(plain(facts.unknown()))
        claims[name] = Flow(tuple(axes))
    return claims


def _fill(value: ir.Value, state: Flow) -> bool:
    """Write what is known of a value into its shape; return whether that is new."""
    shape = value.shape
    if shape is not None and len(shape) != state.rank:
        return False
    old = [None] * state.rank if shape is None else list(shape)
    new = [
        size if isinstance(size, int) or known is None else known
        for size, known in zip(old, [axis_size(a).constant for a in state.axes], strict=True)
    ]
    if shape is not None and new == old:
        return False
    value.shape = ir.Shape(new)
    return True
