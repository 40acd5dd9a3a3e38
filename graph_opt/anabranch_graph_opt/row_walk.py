"""Walking a graph with the rules of its operators: one claim for every value.

Node after node gets claims on its outputs from the claims on its inputs. A node without a rule, or
whose rule gives up, leaves its outputs mixed, with the first cause on the way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from anabranch_graph_opt.flow import Flow, Mixed, Mixing, State
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_rules.counting import constant_flow
from anabranch_graph_opt.row_rules.registry import RULES
from anabranch_graph_opt.row_visit import Visit

__all__ = ["RowWalk"]


class RowWalk:
    """Claims on the values of one model; used by one thread."""

    def __init__(self, model: ir.Model, facts: Facts) -> None:
        self._graph = model.graph
        self._facts = facts
        self._opsets = {_plain_domain(d): version for d, version in model.opset_imports.items()}
        self._states: dict[ir.Value, State] = {}
        self._numbers: dict[ir.Value, int] = {}

    def run(self, inputs: Mapping[str, State]) -> list[State]:
        """Return the claims on the graph's outputs.

        Args:
            inputs: claims on its inputs by name; weights that double as inputs are left out.
        """
        for value in self._graph.inputs:
            if (claim := inputs.get(str(value.name))) is not None:
                self._states[value] = claim
        self._nodes(_needed(self._graph))
        return [self._state(value) for value in self._graph.outputs]

    def state(self, value: ir.Value) -> State:
        """Return the claim on a value of the main graph, after `run`."""
        return self._state(value)

    def _body(self, graph: ir.Graph, states: Sequence[State]) -> list[State]:
        """Walk the body of a control flow node."""
        for value, state in zip(graph.inputs, states, strict=True):
            self._states[value] = state
        self._nodes(list(graph))
        return [self._state(value) for value in graph.outputs]

    def _nodes(self, nodes: Sequence[ir.Node]) -> None:
        for node in nodes:
            number = self._computation(node)
            states = self._after(node, number)
            for i, value in enumerate(node.outputs):
                state = states[i] if i < len(states) else None
                if state is None:
                    state = Mixed(_cause(node, f"has an output {i} of which nothing is known"))
                self._numbers[value] = self._facts.value_number(("output", number, i))
                self._states[value] = self._scalar(state, self._numbers[value])

    def _state(self, value: ir.Value) -> State:
        state = self._states.get(value)
        if state is None:
            if value.const_value is None:
                return Mixed(f"tensor {value.name!r} is used before it is computed")
            state = constant_flow(value.const_value)
            self._states[value] = state
        return state

    def _after(self, node: ir.Node, number: int) -> Sequence[State]:
        domain = _plain_domain(node.domain)
        rule = RULES.get((domain, node.op_type))
        inputs = tuple(None if v is None else self._state(v) for v in node.inputs)
        if rule is None:
            return [_without_rule(node, inputs)] * len(node.outputs)
        opset = self._opsets.get(domain, 1)
        try:
            return rule(Visit(node, opset, inputs, number, self._facts, self._body))
        except Mixing as mixing:
            cause = mixing.inherited or _cause(node, mixing.phrase)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # A malformed node, or an attribute that its version does not have: no claim.
            cause = _cause(node, f"is not understood ({type(error).__name__}: {error})")
        return [Mixed(cause)] * len(node.outputs)

    def _computation(self, node: ir.Node) -> int:
        """Equal numbers for nodes that compute the same from the same values."""
        inputs = tuple(
            None if v is None else self._numbers.get(v, self._facts.value_number(("value", id(v))))
            for v in node.inputs
        )
        attributes = tuple(sorted((a.name, _attribute_key(a)) for a in node.attributes.values()))
        return self._facts.value_number((node.domain, node.op_type, attributes, inputs))

    def _scalar(self, state: State, number: int) -> State:
        """Where a row is one scalar, that scalar gets the number of the value."""
        if not isinstance(state, Flow) or state.number is not None or state.space is None:
            return state
        factors = [factor for factors in state.axes for factor in factors]
        if len(factors) != 1 or not state.is_data:
            return state
        return replace(state, number=number)


def _plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _without_rule(node: ir.Node, inputs: Sequence[State | None]) -> Mixed:
    for state in inputs:
        if isinstance(state, Mixed):
            return state
    kind = f"operator of domain {node.domain!r}" if node.domain else "operator"
    return Mixed(_cause(node, f"is an {kind} of which is not known how it treats rows"))


def _needed(graph: ir.Graph) -> list[ir.Node]:
    """Nodes that outputs depend on, in the order of the graph."""
    wanted = set(graph.outputs)
    nodes: list[ir.Node] = []
    for node in reversed(list(graph)):
        if not wanted.isdisjoint(node.outputs):
            nodes.append(node)
            wanted.update(value for value in node.inputs if value is not None)
            wanted.update(_captured(node))
    return nodes[::-1]


def _bodies(node: ir.Node) -> list[ir.Graph]:
    graphs = (a for a in node.attributes.values() if a.type is ir.AttributeType.GRAPH)
    return [attribute.as_graph() for attribute in graphs]


def _captured(node: ir.Node) -> set[ir.Value]:
    """Values that the bodies of a control flow node use, their own among them."""
    found: set[ir.Value] = set()
    bodies = _bodies(node)
    while bodies:
        body = bodies.pop()
        found.update(body.outputs)
        for inner in body:
            found.update(value for value in inner.inputs if value is not None)
            bodies += _bodies(inner)
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
