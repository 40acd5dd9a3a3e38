"""Brings the graphs of different exporters into one form, before anything is looked for in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir
from onnx_ir.passes import InvariantError, PassError
from onnx_ir.passes import common as library

from anabranch_graph_opt.graph_order import check_order
from anabranch_graph_opt.passes.loop_lookups import LoopLookupsPass
from anabranch_graph_opt.passes.outer_outputs import OuterOutputsPass
from anabranch_graph_opt.passes.output_names import OutputNamesPass
from anabranch_graph_opt.passes.shapes_of_rows import ShapesOfRowsPass
from anabranch_graph_opt.passes.static_numbers import StaticNumbersPass, made_of_constants
from anabranch_graph_opt.weight_data import check_weight_data
from anabranch_wire.errors import InvalidInput

__all__ = ["Normalised", "normalise"]

_ENDLESS: Final = 2**31
_FAILURES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


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
        InvalidInput: the graph is malformed, or weights are not where it says.
    """
    check_order(model.graph)
    check_weight_data(model)
    weights = frozenset(
        name
        for name, value in model.graph.initializers.items()
        if value.dtype is not None and value.dtype.is_floating_point()
    )
    outputs = [str(value.name) for value in model.graph.outputs]
    try:
        return Normalised(_normal_form(model, weights, outputs), weights)
    except (*_FAILURES, PassError, InvariantError) as error:
        # Passes of libraries raise what their authors did not think of.
        raise InvalidInput(f"the graph cannot be normalised: {error}") from error


def _normal_form(model: ir.Model, weights: frozenset[str], outputs: Sequence[str]) -> ir.Model:
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
        OutputNamesPass(outputs),
    ]
    for each in passes:
        if isinstance(each, library.ShapeInferencePass):
            _refuse_endless(copy)
        copy = each(copy).model
    return copy


def _refuse_endless(model: ir.Model) -> None:
    """Refuse constants that no memory holds: inferring shapes would lay them out."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type in ("ConstantOfShape", "Range") and made_of_constants(node) > _ENDLESS:
            raise InvalidInput(f"a node {node.op_type} asks for more numbers than memory holds")


def _has_sequences(model: ir.Model) -> bool:
    return any(
        node.op_type.startswith("Sequence")
        or node.op_type in ("SplitToSequence", "ConcatFromSequence")
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
    )
