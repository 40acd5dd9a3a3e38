"""How many elements an operator makes, before it is run: a constant of ten bytes can ask for 2**60.

Only operators whose result can be much larger than what goes in are listed; others make what their
inputs broadcast to at most.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["result_size"]

Array = NDArray[Any]

_ENDLESS: Final = 2**62


def result_size(
    operator: str, arrays: Sequence[Array | None], attributes: Mapping[str, object]
) -> int:
    """Return an upper bound of the elements that a standard operator makes of known inputs.

    Args:
        operator: its type.
        arrays: inputs; None where one is left out.
        attributes: of the node.
    """
    known: list[Array] = [array for array in arrays if array is not None]
    if not known:
        return 0
    first = known[0]
    if operator in ("ConstantOfShape", "Expand") and known:
        target = known[-1]
        if target.size > 64:
            return _ENDLESS
        sizes = [abs(int(size)) for size in target.reshape(-1)]
        grown = prod(max(size, 1) for size in sizes) if operator == "Expand" else prod(sizes)
        return grown * (max(int(first.size), 1) if operator == "Expand" else 1)
    if operator == "Tile":
        repeats = [abs(int(count)) for count in known[-1].reshape(-1)[:64]]
        return int(first.size) * prod(repeats)
    if operator == "Range":
        start, limit, step = (float(array.reshape(-1)[0]) for array in known[:3])
        return max(0, int(min(abs(limit - start) / abs(step), _ENDLESS))) + 1 if step else 0
    if operator in ("Gather", "GatherND"):
        # Each index reads one element at least, and all of the data at most.
        axis = attributes.get("axis", 0)
        if operator == "Gather" and isinstance(axis, int) and first.ndim:
            return int(known[-1].size) * (int(first.size) // max(1, int(first.shape[axis])))
        depth = int(known[-1].shape[-1]) if known[-1].ndim else 0
        return (
            int(known[-1].size) // max(1, depth) * prod(int(each) for each in first.shape[depth:])
        )
    if operator in ("Pad", "OneHot", "Resize", "Upsample", "ConvTranspose", "EyeLike"):
        return _ENDLESS
    shapes = [array.shape for array in known]
    rank = max(len(shape) for shape in shapes)
    widest = [1] * rank
    for shape in shapes:
        for index, size in enumerate(reversed(shape)):
            widest[index] = max(widest[index], size)
    return max(prod(widest), sum(int(np.size(array)) for array in known))
