"""Graphs of a version with the weights that deltas bring, written once for all workers.

Weights accumulate: a file in the cache folder holds all of every weight that deltas have changed,
and each new graph is made from the published one and that file. So it is what a version would be
that was published with these weights, to the last bit, whatever deltas came before. Nothing is
proven or timed again: how rows flow, what is cut and what runs once per user hangs on the structure
of a graph, which no delta changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_model_store.deltas.graph_splicing import write_graph_with
from anabranch_model_store.deltas.graph_trials import UpdateTrial
from anabranch_model_store.deltas.targets import DeltaTarget, GraphFiles, RowChanges, WeightChanges
from anabranch_model_store.deltas.weight_files import WeightFiles, read_weights
from anabranch_model_store.deltas.weight_places import GraphPart, WeightPlace, WeightPlaces
from anabranch_model_store.optimized_forms import optimized_form
from anabranch_runtime.models import DenseModel
from anabranch_wire.errors import AnabranchError, Corrupt, InvalidInput, NotFound, Unavailable
from anabranch_wire.weight_targets import SliceOrScale

__all__ = ["UpdatedGraphs", "updated_graphs"]

Array = NDArray[np.generic]

_FORMAT: Final = "updated 1"


@dataclass(frozen=True, slots=True, eq=False)
class UpdatedGraphs:
    """A version's graphs with new weights.

    Attributes:
        model: what workers build now.
        files: what the next delta starts from.
        note: what an operator should know, in words; "" for nothing.
    """

    model: DenseModel
    files: GraphFiles | None
    note: str = ""


def updated_graphs(
    target: DeltaTarget,
    changes: WeightChanges,
    places: WeightPlaces,
    built: BuiltGraphs,
    weights: WeightFiles,
) -> UpdatedGraphs:
    """Return the graphs of a version with new weights.

    Where no graph holds what changes, nothing is read or written.

    Args:
        target: the version as it is.
        changes: what is new; parts of it that only the store holds are left alone.
        places: of the target.
        built: where optimised graphs are kept.
        weights: where weights are kept.

    Raises:
        InvalidInput: a change fits no weight.
        DeltaCorrupt: with it, a graph makes nothing but NaN of every example, or a number is too
            large for its type (`deltas.non_finite: refuse`).
        Corrupt, NotFound: a graph of the version or of the cache folder is not what it was.
        Unavailable: weights of earlier deltas are gone or damaged, a file cannot be read, or the
            cache folder not be written.
    """
    found = {name: places.find(name) for name in (*changes.tensors, *changes.rows)}
    touched = {place.name: place for place in found.values() if place.graph}
    for name, array in changes.tensors.items():
        found[name].check_tensor(array)
    if not touched or target.graphs is None:
        return UpdatedGraphs(target.model, target.graphs)
    before = target.graphs.weights
    new = {} if before is None else _weights_before(before)
    for name, array in changes.tensors.items():
        if found[name].graph:
            new[found[name].name] = array
    is_strict = target.deployment.deltas.non_finite == "refuse"
    sent = {found[name].name for name in changes.tensors}
    for name, rows in changes.rows.items():
        place = found[name]
        if place.graph:
            if place.name not in new:
                new[place.name] = places.array(place)
            elif place.name in sent:
                new[place.name] = new[place.name].copy()  # the delta's own stays as it is
            _change_rows(place, new[place.name], rows, is_strict)
    file = weights.keep(new)
    parts: set[GraphPart] = {one.part for place in touched.values() for one in place.graph}
    placed: dict[GraphPart, Mapping[str, Array]] = {
        part: _initializers(part, new, places) for part in parts
    }
    making = _Making(target, places, placed, built, file.stem)
    return replace(making.made(), files=replace(target.graphs, weights=file))


def _weights_before(path: Path) -> dict[str, Array]:
    """Return what deltas have brought; what is damaged is removed, and counts as gone.

    Raises:
        Unavailable: it is not there any more.
    """
    try:
        return read_weights(path)
    except (Corrupt, NotFound) as error:
        path.unlink(missing_ok=True)
        raise Unavailable(error.message) from None


def _change_rows(
    place: WeightPlace, made: Array, changes: Sequence[RowChanges], is_strict: bool
) -> None:
    """Give a weight, which is this delta's to change, other rows.

    Raises:
        InvalidInput: rows do not fit.
        DeltaCorrupt: a number is too large.
    """
    for change in changes:
        place.check_rows(change.values.shape[1], len(change.deleted))
        outside = (change.keys < 0) | (change.keys >= len(made))
        if outside.any():
            raise InvalidInput(
                f"table {place.name!r}: key {change.keys[outside][0]}; its keys are row numbers, "
                f"0 to {len(made) - 1}: rows of a weight cannot be added, publish a version instead"
            )
        with np.errstate(over="ignore"):
            values = change.values.astype(made.dtype)
        lost = np.isfinite(change.values) & ~np.isfinite(values)
        if is_strict and lost.any():
            raise DeltaCorrupt(
                "non_finite",
                f"table {place.name!r}: {change.values[lost][0]} is too large for {made.dtype}, "
                "which its rows are (serving.yaml: deltas.non_finite: allow lets it in)",
            )
        made[change.keys] = values


def _initializers(
    part: GraphPart, weights: Mapping[str, Array], places: WeightPlaces
) -> dict[str, Array]:
    """Return the initializers of a graph that new weights become, by name."""
    found: dict[str, Array] = {}
    for name, array in weights.items():
        for place in places.find(name).graph:
            if place.part == part:
                found[place.name] = _transformed(array, place.transform)
    return found


def _transformed(array: Array, transform: str | SliceOrScale) -> Array:
    if not isinstance(transform, SliceOrScale):
        return array.T if transform == "transpose" else array
    if transform.slice is not None:
        return array[transform.slice[0] : transform.slice[1]]
    assert transform.scale is not None
    return (array.astype(np.float64) * transform.scale).astype(array.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class _Making:
    """Makes the graphs of one target; see `updated_graphs`.

    Attributes:
        target: the version.
        places: of it.
        weights: per graph that changes, its new initializers.
        built: where graphs are kept.
        state: of all weights, as one word.
    """

    target: DeltaTarget
    places: WeightPlaces
    weights: Mapping[GraphPart, Mapping[str, Array]]
    built: BuiltGraphs
    state: str

    def made(self) -> UpdatedGraphs:
        """Return the model with all that changes, and what is to be said."""
        model = self.target.model
        cut = model.cut
        if cut is not None:
            if "prelude" in self.weights and cut.prelude is not None:
                cut = replace(cut, prelude=replace(cut.prelude, path=self._kept("prelude")))
            if "user" in self.weights and cut.user is not None:
                graph = replace(cut.user.graph, path=self._kept("user"))
                cut = replace(cut, user=replace(cut.user, graph=graph))
            model = replace(model, cut=cut)
        if "dense" not in self.weights:
            trial = UpdateTrial(self.target)
            trial.check(trial.answers(model))
            return UpdatedGraphs(model, None)
        return self._with_dense(model)

    def _with_dense(self, model: DenseModel) -> UpdatedGraphs:
        """Return a model with a new dense graph: its optimised form, or as it is with a note."""
        trial = UpdateTrial(self.target)
        with self.built.scratch() as place:
            path = self._written("dense", place)
            answers = trial.answers(_with_path(model, path, optimized=False))
            trial.check(answers)
            try:
                form = optimized_form(self.built, self._key("dense"), path)
                made = _with_path(model, form, optimized=True)
                if trial.are_same(answers, trial.answers(made)):
                    return UpdatedGraphs(made, None)
                reason = "its optimised graph answers differently"
            except AnabranchError as error:
                reason = error.message
        note = f"workers build it from a graph that is not optimised: {reason}"
        return UpdatedGraphs(_with_path(model, self._kept("dense"), optimized=False), None, note)

    def _kept(self, part: GraphPart) -> Path:
        """Return a graph with its new weights, in the cache folder for good."""
        folder = self.built.get(self._key(part), lambda place: self._written(part, place))
        return folder / self.places.graphs[part].path.name

    def _written(self, part: GraphPart, place: Path) -> Path:
        return write_graph_with(self.places.graphs[part], self.weights[part], place)

    def _key(self, part: GraphPart) -> str:
        path = self.places.graphs[part].path
        origin = (_FORMAT, self.target.identity, path.parent.name, path.name, part)
        return "|".join((*origin, self.state))


def _with_path(model: DenseModel, path: Path, *, optimized: bool) -> DenseModel:
    """Return a model whose dense graph is another file."""
    if model.cut is None:
        return replace(model, path=path, optimized=optimized)
    dense = replace(model.cut.dense, path=path, optimized=optimized)
    return replace(model, cut=replace(model.cut, dense=dense))
