"""Graphs as ONNX Runtime would run them, written once for all workers and kept in the cache folder.

Workers then build from the server's own cache folder, with the time and memory that
`anabranch_runtime.backends.ort_optimized` tells of.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_runtime.backends.ort_optimized import GRAPH_FILE, library_version, write_optimized
from anabranch_runtime.cpu import kernel_isa

__all__ = ["optimized_form", "same_answers"]


def optimized_form(graphs: BuiltGraphs, origin: str, path: Path) -> Path:
    """Return the optimised form of a graph, written where it is not there.

    Args:
        graphs: where it is kept.
        origin: what the numbers of the graph depend on, in words of any kind.
        path: the graph.

    Raises:
        InvalidInput: the graph cannot be built.
        Unavailable: the cache folder cannot be written.
    """
    key = "|".join((origin, path.name, library_version(), kernel_isa()))
    return graphs.get(key, lambda place: write_optimized(path, place)) / GRAPH_FILE


def same_answers(
    one: Mapping[str, NDArray[np.generic]], two: Mapping[str, NDArray[np.generic]]
) -> bool:
    """Whether two answers are the same to the last bit."""
    return one.keys() == two.keys() and all(
        array.dtype == two[name].dtype
        and np.array_equal(array, two[name], equal_nan=array.dtype.kind == "f")
        for name, array in one.items()
    )
