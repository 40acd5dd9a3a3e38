"""Where each weight of the original went, so that a delta can bring a new one by its old name."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.optimized import TableSource
from anabranch_wire.weight_targets import ToDense, ToTable, WeightTarget

__all__ = ["map_weights", "tied_copies"]

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

    def copies(kept: Set[str]) -> Iterator[tuple[str, str, bool]]:
        return tied_copies(set(targets), kept, partial(_shape, original), partial(_array, original))

    for name, twin, is_transposed in list(copies(kept & weights)):
        transform: Literal["none", "transpose"] = "transpose" if is_transposed else "none"
        targets[name].append(ToDense(name=twin, transform=transform))
    for name, _, _ in list(copies(reduced)):
        targets.pop(name, None)
    return {name: tuple(found) for name, found in targets.items()}


def tied_copies(
    named: Set[str],
    kept: Set[str],
    shape: Callable[[str], tuple[int, ...]],
    array: Callable[[str], NDArray[Any]],
) -> Iterator[tuple[str, str, bool]]:
    """Yield name, nameless copy of it, and whether that is transposed.

    Args:
        named: weights that may have copies.
        kept: weights that are run, copies among them.
        shape: of a weight.
        array: numbers of a weight; asked for where a copy would have its shape.
    """
    own = {name: shape(name) for name in sorted(named) if not _NAMELESS.fullmatch(name)}
    turned = {size[::-1] for size in own.values()}
    nameless = {
        twin: size
        for twin in sorted(kept)
        if _NAMELESS.fullmatch(twin)
        and len(size := shape(twin)) == 2
        and (size in turned or size[::-1] in turned)
    }
    shapes = set(nameless.values())
    shapes |= {size[::-1] for size in shapes}
    arrays: dict[str, NDArray[Any]] = {}
    samples: dict[_Sample, list[str]] = {}
    for name, size in own.items():
        if size in shapes:
            arrays[name] = array(name)
            samples.setdefault(_sample(arrays[name]), []).append(name)
    for twin in nameless:
        numbers = array(twin)
        found: set[str] = set()
        for is_transposed, candidate in ((False, numbers), (True, numbers.T)):
            for name in samples.get(_sample(candidate), ()):
                if name not in found and _are_equal(arrays[name], candidate):
                    found.add(name)
                    yield name, twin, is_transposed


_Sample = tuple[str, tuple[int, ...], bytes]


def _sample(array: NDArray[Any]) -> _Sample:
    """Return type, shape and some numbers: what is equal has equal ones."""
    if not array.size:
        return str(array.dtype), array.shape, b""
    count = min(_SAMPLE, max(array.shape))
    rows, columns = (np.linspace(0, size - 1, count, dtype=np.int64) for size in array.shape)
    # Adding 0 makes one zero of both.
    return str(array.dtype), array.shape, np.asarray(array[rows, columns] + 0).tobytes()


def _are_equal(first: NDArray[Any], second: NDArray[Any]) -> bool:
    # Weights that are all one number are equal to many others by accident, and so are empty ones.
    return bool(np.any(first != first.flat[:1])) and np.array_equal(first, second)


def _array(model: ir.Model, name: str) -> NDArray[Any]:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def _shape(model: ir.Model, name: str) -> tuple[int, ...]:
    tensor = model.graph.initializers[name].const_value
    return () if tensor is None else tuple(tensor.shape.numpy())
