"""One node as its rule sees it: attributes, and the claims on its inputs with their conditions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from anabranch_graph_opt.flow import Flow, Mixed, Mixing, State
from anabranch_graph_opt.row_facts import Facts

__all__ = ["GraphWalk", "Rule", "Visit", "counted"]

GraphWalk = Callable[[ir.Graph, Sequence[State]], list[State]]
"""Walks the body of a control flow node: (graph, states of its inputs) -> states of its outputs."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A node on the walk.

    Attributes:
        node: the node.
        opset: version of the node's operator set.
        states: claim on each input; None where an optional input is left out.
        number: number of the node's computation; equal for equal nodes on equal inputs.
        facts: of the whole analysis.
        walk: for control flow.
    """

    node: ir.Node
    opset: int
    states: tuple[State | None, ...]
    number: int
    facts: Facts
    walk: GraphWalk

    @property
    def op(self) -> str:
        """Operator name."""
        return self.node.op_type

    def name(self, index: int) -> str:
        """Quoted name of an input tensor, for messages."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return repr(value.name) if value is not None else f"input {index}"

    def has(self, index: int) -> bool:
        """Whether the optional input is given."""
        return index < len(self.states) and self.states[index] is not None

    def state(self, index: int) -> State:
        """Claim on an input; a mixed one ends the rule.

        Raises:
            Mixing: the input is mixed or left out.
        """
        state = self.states[index] if index < len(self.states) else None
        if state is None:
            raise Mixing(f"lacks input {index}")
        if isinstance(state, Mixed):
            raise Mixing("", inherited=state.cause)
        return state

    def flow(self, index: int) -> Flow:
        """Claim on a tensor, whatever its elements mean.

        Raises:
            Mixing: the input is mixed, left out or a sequence.
        """
        state = self.state(index)
        if not isinstance(state, Flow):
            raise Mixing(f"takes the sequence {self.name(index)} as a tensor")
        return state

    def data(self, index: int) -> Flow:
        """Claim on a tensor whose elements are covered by the claim, meaning dropped.

        Raises:
            Mixing: as `flow`, or the elements count rows (their number, or a row's position).
        """
        flow = self.flow(index)
        if not flow.is_data:
            what = "the number of rows" if flow.numbers is not None else "positions in the batch"
            raise Mixing(f"computes with {what} in {self.name(index)}")
        return Flow(flow.axes, flow.current, flow.same, None, flow.number)

    def fixed(self, index: int) -> Flow:
        """Claim on a tensor that is the same for every batch, a weight for example.

        Raises:
            Mixing: as `data`, or the tensor depends on rows.
        """
        flow = self.data(index)
        if flow.space is not None or flow.current:
            raise Mixing(f"needs {self.name(index)} to be the same for every row")
        return flow

    def constants(self, index: int, what: str) -> tuple[int, ...]:
        """Known integers of an input that configures the node.

        Raises:
            Mixing: they are not known when the model is loaded.
        """
        constants = self.flow(index).constants
        if constants is None:
            raise Mixing(f"has {what} {self.name(index)} that are not constant")
        return constants

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return self.node.attributes.get_int(name, default)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute of integers; None where it is left out."""
        attribute = self.node.attributes.get(name)
        return None if attribute is None else tuple(attribute.as_ints())

    def axis(self, rank: int, default: int) -> int:
        """The attribute `axis`, counted from the front.

        Raises:
            Mixing: there is no such axis.
        """
        return counted(self.integer("axis", default), rank)

    def axes(self, rank: int, index: int) -> tuple[int, ...] | None:
        """Axes from the attribute `axes` (older operator sets) or input `index`; None: left out."""
        given = self.integers("axes")
        if given is None and self.has(index):
            given = self.constants(index, "axes")
        return None if given is None else tuple(counted(axis, rank) for axis in given)

    def off_rows(self, index: int, axes: Sequence[int], doing: str) -> None:
        """Check that none of `axes` of an input holds rows.

        Raises:
            Mixing: one does.
        """
        row_axis = self.flow(index).row_axis
        if row_axis is not None and row_axis in axes:
            raise Mixing(f"{doing} axis {row_axis} of {self.name(index)}, which holds the rows")


Rule = Callable[[Visit], Sequence[State]]
"""Claims on a node's outputs; fewer than outputs where the rest is mixed. Raises `Mixing`."""


def counted(axis: int, rank: int) -> int:
    """`axis` counted from the front.

    Raises:
        Mixing: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Mixing(f"names axis {axis} of a tensor with {rank} axes")
    return axis % rank
