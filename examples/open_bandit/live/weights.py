"""The weights of the click model by the names that its ONNX file has for them; no torch.

Whatever is published goes by these names, so a weight of the trainer is the one that is served.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

__all__ = [
    "DENSE",
    "ITEM_FEATURE_TABLES",
    "ITEM_TABLE",
    "POSITION_TABLE",
    "TABLES",
    "USER_TABLES",
    "Real",
    "Weights",
    "read_weights",
    "write_weights",
]

Real: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
"""Numbers: float32 where a model is served, float64 where its gradient is checked."""

Weights: TypeAlias = dict[str, Real]
"""Name of the initializer -> its numbers."""

USER_TABLES: Final = tuple(f"user_tables.{k}.weight" for k in range(4))
ITEM_FEATURE_TABLES: Final = tuple(f"item_feature_tables.{k}.weight" for k in range(3))
ITEM_TABLE: Final = "item_table.weight"
POSITION_TABLE: Final = "position_table.weight"
TABLES: Final = (*USER_TABLES, *ITEM_FEATURE_TABLES, ITEM_TABLE, POSITION_TABLE)
"""Weights that are indexed by row number: (rows, 8)."""

DENSE: Final = ("hidden.weight", "hidden.bias", "out.weight", "out.bias", "wide.weight")
"""The others: (32, 90), (32,), (1, 32), (1,) and (1, 1)."""


def read_weights(model: bytes) -> Weights:
    """Return copies of the weights in an ONNX file.

    Args:
        model: the file.

    Raises:
        ValueError: one is missing: this is another model.
    """
    graph = onnx.load_from_string(model).graph
    found = {each.name: numpy_helper.to_array(each).copy() for each in graph.initializer}
    if missing := [name for name in (*TABLES, *DENSE) if name not in found]:
        raise ValueError(f"the model has no weights {', '.join(missing)}: train the example again")
    return {name: found[name] for name in (*TABLES, *DENSE)}


def write_weights(model: bytes, weights: Mapping[str, Real], path: Path) -> None:
    """Write an ONNX file with other weights in it, all else as it was.

    Args:
        model: the file as it was.
        weights: initializer -> float32 numbers in its shape.
        path: where to.
    """
    changed = onnx.load_from_string(model)
    for each in changed.graph.initializer:
        if each.name in weights:
            each.CopyFrom(numpy_helper.from_array(weights[each.name], each.name))
    onnx.save(changed, path)
