"""The optimised form of a version's graph, written once for all workers.

Workers then build from the server's own cache folder: a worker that is started again does not need
the repository, whatever happened to it meanwhile. What cannot be written, or would not answer
exactly as the original, is served from the original.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.preparation import PreparedVersion
from anabranch_model_store.reduced_versions import ReducedVersion
from anabranch_runtime.backends.ort_optimized import GRAPH_FILE, library_version, write_optimized
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.cpu import kernel_isa
from anabranch_wire.errors import AnabranchError

__all__ = ["GraphBuilder"]

_LIMIT_BYTES: Final = 1 << 30
"""Kept of graphs that nothing serves, for rollbacks and restarts."""


class GraphBuilder:
    """Builds optimised graphs, or finds those built before. Used by one thread.

    Args:
        cache: the server's cache folder.
        limit_bytes: kept of what nothing serves.
    """

    def __init__(self, cache: Path, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._graphs = BuiltGraphs(cache / "graphs", limit_bytes)

    def prune(self, in_use: Collection[str]) -> None:
        """Keep the cache small.

        Args:
            in_use: paths of the graph files that workers may still be told of.
        """
        self._graphs.prune([Path(path).parent for path in in_use])

    def build(self, prepared: PreparedVersion, runner: OrtModelRunner) -> PreparedVersion:
        """Return `prepared` with the optimised graph as its model, or as it is with a note.

        Args:
            prepared: a version that was found good.
            runner: one that ran it.
        """
        cut = prepared.model.cut
        model = prepared.model if cut is None else cut.dense
        is_own = cut is not None or isinstance(prepared.reduced, ReducedVersion)
        # What we made depends on more than the version; its folder is named after all of that.
        origin = model.path.parent.name if is_own else prepared.identity
        key = "|".join((origin, model.path.name, library_version(), kernel_isa()))
        try:
            folder = self._graphs.get(key, lambda place: write_optimized(model.path, place))
            optimized = replace(model, path=folder / GRAPH_FILE, optimized=True)
            own = OrtModelRunner(is_optimized=True)
            for example in prepared.graph_examples:
                if not _same(runner.run(model.path, example), own.run(optimized.path, example)):
                    return _with_note(prepared, "its optimised graph answers differently")
        except AnabranchError as error:
            return _with_note(prepared, error.message)
        if cut is not None:
            optimized = replace(prepared.model, cut=replace(cut, dense=optimized))
        return replace(prepared, model=optimized)


def _same(one: Mapping[str, np.ndarray], two: Mapping[str, np.ndarray]) -> bool:
    """Whether two answers are the same to the last bit."""
    return one.keys() == two.keys() and all(
        array.dtype == two[name].dtype
        and np.array_equal(array, two[name], equal_nan=array.dtype.kind == "f")
        for name, array in one.items()
    )


def _with_note(prepared: PreparedVersion, reason: str) -> PreparedVersion:
    note = f"workers build it from the repository, which has to stay: {reason}"
    return replace(prepared, notes=(*prepared.notes, note))
