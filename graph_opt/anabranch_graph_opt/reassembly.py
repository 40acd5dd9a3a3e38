"""The graph that a plan and its parts stand for, for analyses: what was cut is put back in.

Tables in it have the right shapes and no numbers, so it says everything about how rows, ids and
shapes flow, and is not to be run. With a user side, every row is a user of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt.graph_constants import integers
from anabranch_graph_opt.signature import DATATYPE_OF_ONNX
from anabranch_graph_opt.user_side.splitting import USER_INDEX
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Lookup, Offsets, Values
from anabranch_wire.plan import Buffer, Plan, PlanInput

__all__ = ["reassembled"]

_ONNX_OF_DATATYPE: Final = {word: kind for kind, word in DATATYPE_OF_ONNX.items()}
_TYPES: Final = {"f32": ir.DataType.FLOAT, "f16": ir.DataType.FLOAT16}
_POOLED: Final[Mapping[str, str]] = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "sqrtn": "ReduceL2",
}  # fmt: skip
"""Operators by which a row of the result depends on the same ids."""


def reassembled(
    plan: Plan, dense: ir.Model, prelude: ir.Model | None = None, user: ir.Model | None = None
) -> ir.Model:
    """Return one graph that takes the inputs of the original and gives its outputs.

    Args:
        plan: of the version; it says what the inputs are.
        dense: the graph that is left; not changed, as the others.
        prelude: what makes ids; None where the plan names none.
        user: what runs once per user; None where the plan names none.

    Raises:
        InvalidInput: plan and graphs contradict each other.
        Unsupported: the dense graph does what no optimiser writes.
    """
    model = dense.clone()
    work = _Reassembly(plan, model, has_users=user is not None)
    work.declare_inputs()
    if prelude is not None:
        work.take_in(prelude.clone(), "ab_prelude/")
    work.look_up()
    if user is not None:
        work.take_in(user.clone(), "ab_user/")
        work.make_users_rows()
    work.connect()
    return model


@dataclass(slots=True, eq=False)
class _Reassembly:
    """One graph that is put together.

    Attributes:
        plan: by which.
        model: becomes the whole.
        has_users: whether user buffers have a row for each row of the batch.
        values: what is known by name so far: inputs, outputs of parts, buffers.
        nodes: that come before those of the dense graph, in order.
        tables: of the plan, by index and type of the buffer that their rows go to.
    """

    plan: Plan
    model: ir.Model
    has_users: bool
    values: dict[str, ir.Value] = field(default_factory=dict)
    nodes: list[ir.Node] = field(default_factory=list)
    tables: dict[tuple[int, ir.DataType], ir.Value] = field(default_factory=dict)

    def declare_inputs(self) -> None:
        """Make the inputs of the original."""
        for one in self.plan.inputs:
            self.values[one.name] = _input(one)

    def take_in(self, part: ir.Model, prefix: str) -> None:
        """Take over the nodes of a part; its outputs become known by their names."""
        graph = part.graph
        for value in list(graph.inputs):
            _replace(value, self._known(str(value.name)))
        outputs = {str(value.name): value for value in graph.outputs}
        for value in outputs.values():
            if value in graph.inputs or value.name in graph.initializers:
                raise InvalidInput(f"plan.json: nothing of the graphs makes {value.name!r}")
        graph.outputs.clear()
        for name, value in list(graph.initializers.items()):
            graph.initializers.pop(name)
            value.name = prefix + name
            self.model.graph.register_initializer(value)
        for node in list(graph):
            graph.remove(node)
            for value in node.outputs:
                value.name = f"{prefix}{value.name}"
            self.nodes.append(node)
        self.values.update(outputs)
        self.model.opset_imports.update(part.opset_imports)

    def look_up(self) -> None:
        """Make each buffer out of what its lookups read."""
        for index, buffer in enumerate(self.plan.buffers):
            own = [one for one in self.plan.lookups if one.output.buffer == index]
            own.sort(key=lambda lookup: lookup.output.column)
            dims = [self.plan.tables[lookup.table].dim for lookup in own]
            filled = sum(one.columns(dim) for one, dim in zip(own, dims, strict=True))
            if filled != buffer.columns:
                raise InvalidInput(f"plan.json: no lookup fills some columns of {buffer.name!r}")
            parts = [self._rows(lookup, buffer) for lookup in own]
            value = parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=1)
            self.values[buffer.name] = value

    def make_users_rows(self) -> None:
        """Give each row its own user: what was gathered by user is there by row."""
        graph = self.model.graph
        index = next((value for value in graph.inputs if value.name == USER_INDEX), None)
        if index is None:
            raise InvalidInput(f"plan.json: the dense graph does not take {USER_INDEX!r}")
        for node, position in tuple(index.uses()):
            if node.op_type == "Shape":
                node.replace_input_with(position, self._one_each())
                continue
            source = node.inputs[0]
            if node.op_type != "Gather" or position != 1 or source not in graph.inputs:
                raise InvalidInput(f"the dense graph does more with {USER_INDEX!r} than to gather")
            assert source is not None
            copy = ir.node("Identity", [source], name=node.name)
            old, new = node.outputs[0], copy.outputs[0]
            new.type, new.shape = old.type, old.shape
            is_output, name = old.is_graph_output(), old.name
            graph.insert_before(node, copy)
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
            graph.remove(node, safe=True)
            new.name = name if is_output else f"{name}_each"
        graph.inputs.remove(index)

    def connect(self) -> None:
        """Let the dense graph take what comes before it."""
        graph = self.model.graph
        for value in list(graph.inputs):
            graph.inputs.remove(value)
            if value.is_graph_output():
                raise Unsupported(f"the dense graph hands on its input {value.name!r} as it is")
            _replace(value, self._known(str(value.name)))
        graph.inputs.extend(self.values[one.name] for one in self.plan.inputs)
        first = next(iter(graph), None)
        if first is None:
            graph.extend(self.nodes)
        else:
            graph.insert_before(first, self.nodes)

    def _one_each(self) -> ir.Value:
        """Return an integer for each row, to be counted."""
        rows = [one for one in self.plan.inputs if one.shape[:1] == (-1,)]
        able = [one for one in rows if one.datatype != "BYTES"]
        if not able:
            raise Unsupported("no input holds numbers for each row")
        value = self._add("Reshape", [self.values[able[0].name], self._integers([0, -1])])
        bounds = [self._integers([each]) for each in (0, 1, 1)]
        value = self._add("Slice", [value, *bounds])
        value = self._add("Reshape", [value, self._integers([-1])])
        return self._add("Cast", [value], to=ir.DataType.INT64)

    def _known(self, name: str) -> ir.Value:
        value = self.values.get(name)
        if value is None:
            raise InvalidInput(f"plan.json: a graph takes {name!r}, which nothing gives")
        return value

    def _rows(self, lookup: Lookup, buffer: Buffer) -> ir.Value:
        """Return what one lookup writes, [rows, columns]; [1, columns] where all rows share it."""
        if isinstance(lookup.lengths, Offsets):
            return self._bags(lookup, lookup.lengths, buffer)
        rows = self._gathered(self._elements(lookup.ids, lookup), lookup, buffer)
        for factor in (lookup.weights, lookup.lengths):
            if factor is not None:
                rows = self._add("Mul", [rows, self._factor(factor, lookup, buffer)])
        if lookup.combiner != "none":
            axis = self._integers([1])
            return self._add(_POOLED[lookup.combiner], [rows, axis], keepdims=0)
        dim = self.plan.tables[lookup.table].dim
        return self._add("Reshape", [rows, self._integers([0, lookup.columns(dim)])])

    def _bags(self, lookup: Lookup, offsets: Offsets, buffer: Buffer) -> ir.Value:
        """Return something that depends on the ids of all bags, and on where each of them starts.

        Requests with bags are run one by one, so nothing more is asked of how their rows flow.
        """
        rows = self._gathered(self._known(lookup.ids.input), lookup, buffer)
        if lookup.weights is not None:
            weights = self._add(
                "Unsqueeze", [self._known(lookup.weights.input), self._integers([1])]
            )
            rows = self._add("Mul", [rows, weights])
        whole = self._add("ReduceSum", [rows, self._integers([0])], keepdims=1)
        starts = self._add("Cast", [self._known(offsets.input)], to=_TYPES[buffer.dtype])
        starts = self._add("Unsqueeze", [starts, self._integers([1])])
        return self._add("Mul", [starts, whole])

    def _gathered(self, ids: ir.Value, lookup: Lookup, buffer: Buffer) -> ir.Value:
        """Return the rows of a table for ids of any shape."""
        ids = self._add("Cast", [ids], to=ir.DataType.INT64)
        if lookup.ids.add:
            ids = self._add("Add", [ids, self._integers([lookup.ids.add])])
        return self._add("Gather", [self._table(lookup.table, buffer), ids], axis=0)

    def _factor(self, factor: Values, lookup: Lookup, buffer: Buffer) -> ir.Value:
        """Return what rows of a bag depend on beside their ids, [rows, 1 or ids, 1]."""
        value = self._elements(factor, lookup)
        value = self._add("Cast", [value], to=_TYPES[buffer.dtype])
        return self._add("Unsqueeze", [value, self._integers([2])])

    def _elements(self, values: Values, lookup: Lookup) -> ir.Value:
        """Return the elements of rows that a lookup reads, [rows, elements]."""
        value = self._known(values.input)
        sizes = list(value.shape or ())
        is_shared = lookup.side == "user" and not self.has_users
        rest = sizes if is_shared and not _varies(sizes[:1]) else sizes[1:]
        if _varies(rest) or not sizes:
            raise InvalidInput(f"plan.json: rows of {values.input!r} have no fixed size")
        length = prod(int(str(size)) for size in rest)
        value = self._add("Reshape", [value, self._integers([1 if is_shared else 0, length])])
        if values.columns is not None:
            bounds = [self._integers([each]) for each in (*values.columns, 1)]
            value = self._add("Slice", [value, *bounds])
        return value

    def _table(self, index: int, buffer: Buffer) -> ir.Value:
        kind = _TYPES[buffer.dtype]
        known = self.tables.get((index, kind))
        if known is not None:
            return known
        table = self.plan.tables[index]
        shape = (table.rows, table.dim)
        tensor = ir.LazyTensor(
            # Nothing is to read it; what does gets zeros that take no memory.
            lambda: ir.Tensor(np.broadcast_to(kind.numpy().type(0), shape)),
            kind,
            ir.Shape(shape),
            name=f"ab_table/{index}/{buffer.dtype}",
        )
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(kind), shape=ir.Shape(shape), const_value=tensor
        )
        self.model.graph.register_initializer(value)
        self.tables[index, kind] = value
        return value

    def _integers(self, numbers: Sequence[int]) -> ir.Value:
        return integers(self.model.graph, list(numbers))

    def _add(self, operator: str, inputs: Sequence[ir.Value], **attributes: object) -> ir.Value:
        # onnx-ir takes any value that an attribute can have, and declares fewer.
        made = ir.node(operator, list(inputs), attributes)  # type: ignore[arg-type]
        made.outputs[0].name = f"ab_lookup/{len(self.nodes)}"
        self.nodes.append(made)
        return made.outputs[0]


def _input(one: PlanInput) -> ir.Value:
    sizes = [
        ir.SymbolicDim(symbol) if size == -1 else size
        for size, symbol in zip(one.shape, one.symbols, strict=True)
    ]
    kind = ir.TensorType(_ONNX_OF_DATATYPE[one.datatype])
    return ir.Value(name=one.name, type=kind, shape=ir.Shape(sizes))


def _varies(sizes: Sequence[int | ir.SymbolicDim]) -> bool:
    return not all(isinstance(size, int) for size in sizes)


def _replace(value: ir.Value, by: ir.Value) -> None:
    ir.convenience.replace_all_uses_with(value, by)
