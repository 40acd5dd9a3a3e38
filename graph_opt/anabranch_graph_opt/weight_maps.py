"""Where each weight of the original went, so that a delta can bring a new one by its old name."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.optimized import TableSource
from anabranch_wire.weight_targets import ToDense, ToTable, WeightTarget

__all__ = ["map_weights"]

_NAMELESS: Final = re.compile(r"(onnx::\w+_\d+|val_\d+|_?v_\d+|\d+)")
"""Names that exporters number: of copies that they made, which nobody trains."""
_SAMPLE: Final = 64


def map_weights(
    weights: Set[str],
    original: ir.Model,
    tables: Sequence[TableSource],
    graphs: Sequence[ir.Model],
    reduced: Set[str] = frozenset(),
) -> Mapping[str, tuple[WeightTarget, ...]]:
    """Return for each weight that can be updated all places that hold it.

    A weight that an exporter tied to another one under a number of its own, whole or transposed, is
    found by its values: updating one without the other would make the model contradict itself.

    Args:
        weights: names of the original's float initializers.
        original: in normal form, before anything was cut.
        tables: that left the graph.
        graphs: that are run; weights in them keep their names.
        reduced: names of weights that some layer holds in other numbers. What a new one would
            become there cannot be said, so they, and what is tied to them, cannot be updated.
    """
    places = {table.name: index for index, table in enumerate(tables)}
    kept = {
        name for graph in graphs for name, value in graph.graph.initializers.items() if value.uses()
    }
    targets: dict[str, list[WeightTarget]] = {}
    for name in sorted(weights - reduced):
        found: list[WeightTarget] = []
        if name in places:
            found.append(ToTable(index=places[name]))
        if name in kept:
            found.append(ToDense(name=name, transform="none"))
        if found:
            targets[name] = found
    for name, twin, is_transposed in _twins(original, set(targets), kept & weights):
        transform: Literal["none", "transpose"] = "transpose" if is_transposed else "none"
        targets[name].append(ToDense(name=twin, transform=transform))
    for name, _, _ in list(_twins(original, set(targets), reduced)):
        targets.pop(name, None)
    return {name: tuple(found) for name, found in targets.items()}


def _twins(original: ir.Model, named: Set[str], kept: Set[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield name, nameless copy, and whether that is transposed."""
    shapes: dict[tuple[int, ...], list[str]] = {}
    for name in named:
        if not _NAMELESS.fullmatch(name):
            shapes.setdefault(_shape(original, name), []).append(name)
    for twin in sorted(kept):
        shape = _shape(original, twin)
        if not _NAMELESS.fullmatch(twin) or len(shape) != 2:
            continue
        for is_transposed, wanted in ((False, shape), (True, shape[::-1])):
            for name in shapes.get(wanted, ()):
                if _are_equal(original, name, twin, is_transposed=is_transposed):
                    yield name, twin, is_transposed


def _are_equal(model: ir.Model, name: str, twin: str, *, is_transposed: bool) -> bool:
    first, second = _array(model, name), _array(model, twin)
    second = second.T if is_transposed else second
    if first.dtype != second.dtype:
        return False
    rows = np.linspace(0, len(first) - 1, min(_SAMPLE, len(first)), dtype=np.int64)
    if not np.array_equal(first[rows], second[rows]):
        return False
    # Weights that are all one number are equal to many others by accident.
    return bool(np.any(first != first.flat[0])) and np.array_equal(first, second)


def _array(model: ir.Model, name: str) -> NDArray[Any]:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def _shape(model: ir.Model, name: str) -> tuple[int, ...]:
    tensor = model.graph.initializers[name].const_value
    return () if tensor is None else tuple(tensor.shape.numpy())
