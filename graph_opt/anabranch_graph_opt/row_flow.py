"""Proving that rows of a batch do not influence each other, by following the row axis of a graph.

The proof is an abstract interpretation: every value gets a claim (`flow.Flow`) from the claims on
the inputs of its node, by the rule of its operator (`row_rules`), for any number N of rows. A model
is row independent when every output has the rows along one axis, in the order of the inputs, and
each row's part depends on that row alone. What is not understood is not proven.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from anabranch_graph_opt.flow import Axis, Factor, Flow, Mixed, State, plain
from anabranch_graph_opt.model_source import ModelSource, inlined, open_model
from anabranch_graph_opt.row_axes import InputAxis, resolve_row_axes
from anabranch_graph_opt.row_facts import Facts, relabelled
from anabranch_graph_opt.row_walk import RowWalk
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_graph_opt.sizes import Atom, Size

__all__ = ["RowProof", "prove_rows"]

_OLDEST_OPSET: Final = 7


@dataclass(frozen=True, slots=True)
class RowProof:
    """What is proven about the rows of a model's batches.

    It holds for requests whose inputs agree in all axes but the row axis, and in the inputs without
    one (others are never merged), and in which axes that share a symbol have one size.

    Attributes:
        independent: each row's answer depends on that row alone.
        min_rows: fewest rows a run needs for the proof to hold, 1 or 2; a batch of fewer is padded.
        input_axes: input name -> the axis that holds rows; None: the same for every request.
        output_axes: output name -> the axis that holds rows; None: the same for every request.
            Empty where nothing is proven.
        reason: why it is not proven, for the model's owner; "" where it is.
        paddable: rows may be repeated at the end of a batch and their answers dropped.
        splittable: a batch may be cut into smaller ones. Not where the graph picks rows by their
            data: a part in which it picks none is a case that the whole batch may not have.
    """

    independent: bool
    min_rows: int
    input_axes: Mapping[str, int | None]
    output_axes: Mapping[str, int | None]
    reason: str
    paddable: bool
    splittable: bool


def prove_rows(source: ModelSource, axes: Mapping[str, InputAxis] | None = None) -> RowProof:
    """Return what can be proven about the rows of a model.

    Args:
        source: the model; external weights are not opened, except small integer constants.
        axes: what axis 0 of inputs counts, `inputs` of model.yaml; by default rows, where its size
            is symbolic.

    Raises:
        AnabranchError: as `read_signature` and `resolve_row_axes`.
    """
    model = open_model(source)
    signature = read_signature(model)
    resolved = resolve_row_axes(signature, axes)
    input_axes = MappingProxyType(
        {name: 0 if axis.kind == "rows" else None for name, axis in resolved.kinds.items()}
    )
    bags = [name for name, axis in resolved.kinds.items() if axis.kind in ("ids", "bag")]
    if signature.opset < _OLDEST_OPSET:
        return _unproven(
            input_axes,
            f"operator set {signature.opset} is older than {_OLDEST_OPSET}; its operators "
            "broadcast in ways that are not followed",
        )
    if resolved.unclear:
        return _unproven(input_axes, resolved.unclear)
    if bags:
        return _unproven(
            input_axes,
            f"input {bags[0]!r} belongs to bags (axis: {resolved.kinds[bags[0]].kind} in "
            "model.yaml); requests with bags are run one by one",
        )
    if all(axis is None for axis in input_axes.values()):
        return _unproven(
            input_axes,
            "no input has a row axis: axis 0 of every input has a fixed size or is declared to be "
            "the same for every request",
        )
    facts = Facts()
    claims = _entering(signature, input_axes, facts)
    leaving = RowWalk(inlined(model), facts).run(claims)
    return _judged(signature, input_axes, facts, leaving)


def _unproven(input_axes: Mapping[str, int | None], reason: str) -> RowProof:
    return RowProof(
        independent=False,
        min_rows=1,
        input_axes=input_axes,
        output_axes=MappingProxyType({}),
        reason=reason,
        paddable=False,
        splittable=False,
    )


def _entering(
    signature: Signature, input_axes: Mapping[str, int | None], facts: Facts
) -> dict[str, State]:
    """Claims on the inputs. Axes that share a symbol have one size, except the row axis."""
    row_symbols = {
        str(symbol)
        for spec in signature.inputs
        if (axis := input_axes[spec.name]) is not None
        and (symbol := signature.symbols[spec.name][axis]) is not None
    }
    atoms: dict[str, Atom] = {}
    claims: dict[str, State] = {}
    for spec in signature.inputs:
        axes: list[Axis] = []
        odd: str | None = None
        for i, (size, symbol) in enumerate(
            zip(spec.shape, signature.symbols[spec.name], strict=True)
        ):
            if i == input_axes[spec.name]:
                axes.append((Factor(Size.of(facts.rows.atom), facts.rows),))
            elif size >= 0:
                axes.append(plain(size))
            elif symbol is None:
                axes.append(plain(facts.unknown()))
            elif row_symbols.isdisjoint(re.findall(r"\w+", symbol)):
                axes.append(plain(atoms.setdefault(symbol, facts.atom(symbol))))
            else:
                odd = f"axis {i} of input {spec.name!r} has size {symbol!r}: it grows with the rows"
        claims[spec.name] = Mixed(odd) if odd is not None else Flow(tuple(axes))
    return claims


def _judged(
    signature: Signature,
    input_axes: Mapping[str, int | None],
    facts: Facts,
    leaving: list[State],
) -> RowProof:
    """Whether the claims on the outputs make the model row independent."""
    output_axes: dict[str, int | None] = {}
    for spec, state in zip(signature.outputs, leaving, strict=True):
        weakness = _weakness(state, facts)
        if weakness:
            return _unproven(input_axes, f"output {spec.name!r}: {weakness}")
        output_axes[spec.name] = state.row_axis if isinstance(state, Flow) else None
    return RowProof(
        independent=True,
        min_rows=facts.min_rows,
        input_axes=input_axes,
        output_axes=MappingProxyType(output_axes),
        reason="",
        paddable=True,
        splittable=not facts.selects,
    )


def _weakness(state: State, facts: Facts) -> str:
    """What a claim on an output lacks to be the answers of the rows in their order; "": nothing."""
    if isinstance(state, Mixed):
        return state.cause
    if not isinstance(state, Flow):
        return "it is a sequence"
    row_axis = state.row_axis
    if not state.is_data:
        return "it holds the number of rows, or positions in the batch"
    if row_axis is None:
        return ""
    if len(state.axes[row_axis]) != 1:
        return f"its axis {row_axis} holds several entries for each row"
    if relabelled(state, facts.rows) is None:
        return f"its axis {row_axis} holds a selection of rows, or rows in another order"
    return ""
