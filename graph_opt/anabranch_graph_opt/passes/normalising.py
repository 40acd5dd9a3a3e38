"""Brings the graphs of different exporters into one form, before anything is looked for in them."""

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import InvariantError, PassError
from onnx_ir.passes import common as library

from anabranch_graph_opt.passes.loop_lookups import LoopLookupsPass
from anabranch_graph_opt.passes.outer_outputs import OuterOutputsPass
from anabranch_graph_opt.passes.shapes_of_rows import ShapesOfRowsPass
from anabranch_graph_opt.passes.static_numbers import StaticNumbersPass
from anabranch_wire.errors import InvalidInput

__all__ = ["Normalised", "normalise"]


@dataclass(frozen=True, slots=True, eq=False)
class Normalised:
    """A model in normal form: no functions, no constants but initializers, nothing unused.

    Attributes:
        model: a copy; inputs, outputs and weights have the names of the original.
        weights: names of the original's float initializers, which deltas may update.
    """

    model: ir.Model
    weights: frozenset[str]


def normalise(model: ir.Model) -> Normalised:
    """Return `model` in normal form; the given one is not changed, its tensors are shared.

    Raises:
        InvalidInput: a pass found the graph malformed.
    """
    weights = frozenset(
        name
        for name, value in model.graph.initializers.items()
        if value.dtype is not None and value.dtype.is_floating_point()
    )
    copy = model.clone()
    passes: list[ir.passes.PassBase] = [
        library.RemoveInitializersFromInputsPass(),
        library.InlinePass(),
        library.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        library.LiftSubgraphInitializersToMainGraphPass(),
        library.IdentityEliminationPass(),
    ]
    if not _has_sequences(copy):  # shape inference would make tensors of them
        passes.append(library.ShapeInferencePass())
    passes += [
        StaticNumbersPass(weights),
        library.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        library.IdentityEliminationPass(),
        LoopLookupsPass(),
        ShapesOfRowsPass(),
        library.CommonSubexpressionEliminationPass(),
        library.RemoveUnusedNodesPass(),
        OuterOutputsPass(),
    ]
    try:
        for each in passes:
            copy = each(copy).model
    except (PassError, InvariantError) as error:
        raise InvalidInput(f"the graph cannot be normalised: {error}") from error
    return Normalised(copy, weights)


def _has_sequences(model: ir.Model) -> bool:
    return any(
        node.op_type.startswith("Sequence")
        or node.op_type in ("SplitToSequence", "ConcatFromSequence")
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
    )
