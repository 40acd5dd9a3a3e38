"""Proving that rows of a batch do not influence each other, by following the row axis of a graph.

The proof is an abstract interpretation: every value gets a claim (`flow.Flow`) from the claims on
the inputs of its node, by the rule of its operator (`row_rules`), for any number N of rows. A model
is row independent when every output has the rows along one axis, in the order of the inputs, and
each row's part depends on that row alone. What is not understood is not proven.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx_ir as ir

from anabranch_graph_opt.flow import (
    Axis,
    Factor,
    Flow,
    Mixed,
    Mixing,
    State,
    plain,
    space_of,
)
from anabranch_graph_opt.model_source import ModelSource, inlined, open_model
from anabranch_graph_opt.row_axes import InputAxis, resolve_row_axes
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_rules.counting import constant_flow
from anabranch_graph_opt.row_rules.registry import RULES
from anabranch_graph_opt.row_visit import Visit
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_graph_opt.sizes import Atom, Size
from anabranch_wire.tensors import TensorSpec

__all__ = ["RowProof", "prove_rows"]


@dataclass(frozen=True, slots=True)
class RowProof:
    """What is proven about the rows of a model's batches.

    It holds for requests whose inputs agree in all axes but the row axis, and in the inputs without
    one; requests that do not are never merged.

    Attributes:
        independent: each row's answer depends on that row alone.
        min_rows: fewest rows a run needs for the proof to hold, 1 or 2; a batch of fewer is padded.
        input_axes: input name -> the axis that holds rows; None: the same for every request.
        output_axes: output name -> the axis that holds rows; None: the same for every request.
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
    input_axes = {name: 0 if axis.kind == "rows" else None for name, axis in resolved.kinds.items()}
    if resolved.unclear:
        return _unproven(input_axes, resolved.unclear)
    for name, axis in resolved.kinds.items():
        if axis.kind in ("ids", "bag"):
            return _unproven(
                input_axes,
                f"input {name!r} belongs to bags (axis: {axis.kind} in model.yaml); requests with "
                "bags are run one by one",
            )
    if not any(axis == 0 for axis in input_axes.values()):
        return _unproven(
            input_axes,
            "no input has a row axis: axis 0 of every input has a fixed size or is declared to be "
            "the same for every request",
        )
    return _Proof(inlined(model), signature, input_axes).result()


def _unproven(input_axes: Mapping[str, int | None], reason: str) -> RowProof:
    return RowProof(
        independent=False,
        min_rows=1,
        input_axes=MappingProxyType(dict(input_axes)),
        output_axes=MappingProxyType({}),
        reason=reason,
        paddable=False,
        splittable=False,
    )


class _Proof:
    """One walk over one model; owns the claims made on the way."""

    def __init__(
        self, model: ir.Model, signature: Signature, input_axes: Mapping[str, int | None]
    ) -> None:
        self._model = model
        self._signature = signature
        self._input_axes = input_axes
        self._facts = Facts()
        self._states: dict[ir.Value, State] = {}
        self._opsets = {domain or "": v for domain, v in model.opset_imports.items()}
        self._symbols: dict[str, Atom] = {}

    def result(self) -> RowProof:
        """Walk the graph and judge its outputs."""
        graph = self._model.graph
        declared = {spec.name: spec for spec in self._signature.inputs}
        for value in graph.inputs:
            if value.name in declared:
                self._states[value] = self._entering(declared[value.name])
        self._walk_nodes(_needed(graph))
        output_axes: dict[str, int | None] = {}
        for value in graph.outputs:
            verdict = self._judged(value)
            if isinstance(verdict, str):
                return _unproven(self._input_axes, f"output {value.name!r}: {verdict}")
            output_axes[str(value.name)] = verdict.row_axis
        return RowProof(
            independent=True,
            min_rows=self._facts.min_rows,
            input_axes=MappingProxyType(dict(self._input_axes)),
            output_axes=MappingProxyType(output_axes),
            reason="",
            paddable=True,
            splittable=not self._facts.selects,
        )

    def _entering(self, spec: TensorSpec) -> State:
        """Claim on a graph input. Axes that share a symbol have one size, except the row axis."""
        names = self._signature.symbols[spec.name]
        rows = self._facts.rows
        row_axis = self._input_axes[spec.name]
        axes: list[Axis] = []
        for i, (size, name) in enumerate(zip(spec.shape, names, strict=True)):
            if i == row_axis:
                axes.append((Factor(Size.of(rows.atom), rows),))
            elif size >= 0:
                axes.append(plain(size))
            elif name is None:
                axes.append(plain(self._facts.unknown()))
            else:
                axes.append(plain(self._symbol(name)))
        return Flow(tuple(axes))

    def _symbol(self, name: str) -> Atom:
        if name not in self._symbols:
            self._symbols[name] = self._facts.atom(name)
        return self._symbols[name]

    def _judged(self, value: ir.Value) -> Flow | str:
        """The claim on an output, or why it is not enough."""
        state = self._state(value)
        if isinstance(state, Mixed):
            return state.cause
        if not isinstance(state, Flow):
            return "it is a sequence"
        if not state.is_data:
            return "it holds the number of rows, or positions in the batch"
        row_axis = state.row_axis
        if row_axis is None:
            return state
        if len(state.axes[row_axis]) != 1:
            return f"its axis {row_axis} holds several entries for each row"
        if space_of(state.axes[row_axis]) != self._facts.rows and not state.same:
            return f"its axis {row_axis} holds a selection of rows, or rows in another order"
        return state

    def _state(self, value: ir.Value) -> State:
        state = self._states.get(value)
        if state is None:
            if value.const_value is None:
                return Mixed(f"tensor {value.name!r} is used before it is computed")
            state = constant_flow(value.const_value)
            self._states[value] = state
        return state

    def _walk_graph(self, graph: ir.Graph, states: Sequence[State]) -> list[State]:
        """Walk the body of a control flow node."""
        for value, state in zip(graph.inputs, states, strict=True):
            self._states[value] = state
        self._walk_nodes(list(graph))
        return [self._state(value) for value in graph.outputs]

    def _walk_nodes(self, nodes: Sequence[ir.Node]) -> None:
        for node in nodes:
            number = self._number(node)
            states = self._after(node, number)
            for i, value in enumerate(node.outputs):
                state = states[i] if i < len(states) else None
                if state is None:
                    state = Mixed(_cause(node, f"has no known claim on its output {i}"))
                self._states[value] = self._numbered(state, number, i)

    def _after(self, node: ir.Node, number: int) -> Sequence[State]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        rule = RULES.get((domain, node.op_type))
        inputs = tuple(None if v is None else self._state(v) for v in node.inputs)
        if rule is None:
            return self._unknown(node, inputs)
        visit = Visit(
            node, self._opsets.get(domain, 1), inputs, number, self._facts, self._walk_graph
        )
        try:
            return rule(visit)
        except Mixing as mixing:
            cause = mixing.inherited or _cause(node, mixing.phrase)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            cause = _cause(node, f"is not understood ({type(error).__name__}: {error})")
        return [Mixed(cause)] * len(node.outputs)

    def _unknown(self, node: ir.Node, inputs: Sequence[State | None]) -> Sequence[State]:
        for state in inputs:
            if isinstance(state, Mixed):
                return [state] * len(node.outputs)
        kind = f"operator of domain {node.domain!r}" if node.domain else "operator"
        cause = _cause(node, f"is an {kind} of which is not known how it treats rows")
        return [Mixed(cause)] * len(node.outputs)

    def _number(self, node: ir.Node) -> int:
        """Equal numbers for nodes that compute the same from the same values."""
        inputs = tuple(None if v is None else self._value_number(v) for v in node.inputs)
        attributes = tuple(sorted((a.name, _attribute_key(a)) for a in node.attributes.values()))
        return self._facts.value_number((node.domain, node.op_type, attributes, inputs))

    def _value_number(self, value: ir.Value) -> int:
        producer = value.producer()
        if producer is None:
            return self._facts.value_number(("value", id(value)))
        return self._facts.value_number(("output", id(value)))

    def _numbered(self, state: State, number: int, index: int) -> State:
        """One scalar a row is known by the number of its computation."""
        if not isinstance(state, Flow) or state.number is not None or state.space is None:
            return state
        factors = [factor for factors in state.axes for factor in factors]
        if len(factors) != 1 or not state.is_data:
            return state
        return replace(state, number=self._facts.value_number(("scalar", number, index)))


def _needed(graph: ir.Graph) -> list[ir.Node]:
    """Nodes that outputs depend on, in the order of the graph."""
    wanted = {value for value in graph.outputs if value is not None}
    nodes: list[ir.Node] = []
    for node in reversed(list(graph)):
        if not wanted.isdisjoint(node.outputs):
            nodes.append(node)
            wanted.update(value for value in node.inputs if value is not None)
            wanted.update(_captured(node))
    return nodes[::-1]


def _captured(node: ir.Node) -> set[ir.Value]:
    """Values that the bodies of a control flow node use; more than the outer ones do no harm."""
    found: set[ir.Value] = set()
    bodies = [a.as_graph() for a in node.attributes.values() if a.type is ir.AttributeType.GRAPH]
    while bodies:
        body = bodies.pop()
        found.update(value for value in body.outputs if value is not None)
        for inner in body:
            found.update(value for value in inner.inputs if value is not None)
            bodies += [
                a.as_graph() for a in inner.attributes.values() if a.type is ir.AttributeType.GRAPH
            ]
    return found


def _attribute_key(attribute: ir.Attr) -> str:
    if attribute.type is ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.size <= 64 and tensor.dtype is not ir.DataType.STRING:
            return f"{tensor.dtype} {tensor.shape} {tensor.tobytes().hex()}"
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR):
        return f"object {id(attribute)}"
    return repr(attribute.value)


def _cause(node: ir.Node, phrase: str) -> str:
    name = f" {node.name!r}" if node.name else ""
    return f"node{name} ({node.op_type}) {phrase}"
