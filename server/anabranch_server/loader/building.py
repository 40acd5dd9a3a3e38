"""The optimised form of a version's graph, written once for all workers.

Workers then build from the server's own cache folder: a worker that is started again does not need
the repository, whatever happened to it meanwhile. What cannot be written, or would not answer
exactly as the original, is served from the original.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cache_folders import GRAPHS
from anabranch_model_store.optimized_forms import optimized_form, same_answers
from anabranch_model_store.preparation import PreparedVersion
from anabranch_model_store.reduced_versions import ReducedVersion
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.errors import AnabranchError

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """Builds optimised graphs, or finds those built before. Used by one thread.

    Args:
        cache: the server's cache folder.
        limit_bytes: kept of what nothing serves.
    """

    def __init__(self, cache: Path, limit_bytes: int = GRAPHS.limit_bytes) -> None:
        self._graphs = BuiltGraphs(cache / GRAPHS.path, limit_bytes)

    def prune(self, in_use: Collection[str], since: float | None = None) -> None:
        """Keep the cache small.

        Args:
            in_use: paths of the graph files that workers may still be told of.
            since: what was made or used at that time or later stays, seconds since 1970.
        """
        self._graphs.prune([Path(path).parent for path in in_use], since)

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
        try:
            path = optimized_form(self._graphs, origin, model.path)
            optimized = replace(model, path=path, optimized=True)
            own = OrtModelRunner(is_optimized=True)
            for example in prepared.graph_examples:
                if not same_answers(runner.run(model.path, example), own.run(path, example)):
                    return _with_note(prepared, "its optimised graph answers differently")
        except AnabranchError as error:
            return _with_note(prepared, error.message)
        if cut is not None:
            optimized = replace(prepared.model, cut=replace(cut, dense=optimized))
        return replace(prepared, model=optimized)


def _with_note(prepared: PreparedVersion, reason: str) -> PreparedVersion:
    note = f"workers build it from the repository, which has to stay: {reason}"
    return replace(prepared, notes=(*prepared.notes, note))
