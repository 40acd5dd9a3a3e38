"""What deltas bring beside rows of a store: weights of graphs, rows of tables in them, and items.

Of several deltas the last word on each counts, so they are looked through from the newest one on,
and nothing is read that a later delta replaces.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cache_folders import GRAPHS, ITEMS, WEIGHTS
from anabranch_model_store.deltas.delta_golden import delta_golden_notes
from anabranch_model_store.deltas.delta_items import with_new_items
from anabranch_model_store.deltas.delta_rows import changed_rows, changed_weights
from anabranch_model_store.deltas.faults import DeltaConflict, DeltaCorrupt, fault_of
from anabranch_model_store.deltas.graph_updates import updated_graphs
from anabranch_model_store.deltas.published import Published, Stopped, last_items
from anabranch_model_store.deltas.targets import DeltaTarget, RowChanges, WeightChanges
from anabranch_model_store.deltas.weight_files import WeightFiles, read_weights
from anabranch_model_store.deltas.weight_places import WeightPlace, WeightPlaces
from anabranch_model_store.deltas.weight_states import WeightState
from anabranch_model_store.item_cache import ItemCache
from anabranch_wire.delta import Delta
from anabranch_wire.errors import AnabranchError, InvalidInput, Unavailable

__all__ = ["apply_further"]


def apply_further(
    target: DeltaTarget,
    deltas: Sequence[Delta],
    newest: Delta,
    published: Published,
    cache: Path,
    on_phase: Callable[[Literal["building", "comparing"]], None],
    base: WeightState | None = None,
) -> tuple[DeltaTarget, tuple[str, ...]]:
    """Return a version with what deltas bring beside rows of its store, and what is to be said.

    Args:
        target: the version as it was, at the number of the newest delta, and with its rows.
        deltas: those that bring more than rows, one after the other.
        newest: the newest one, whose golden requests are run.
        published: reads their files.
        cache: the server's cache folder.
        on_phase: told what begins.
        base: weights as of one of them, all that came before it counted; None where `target` has
            all that came before.

    Raises:
        Stopped: one is at fault.
    """
    try:
        places = WeightPlaces.of(target)
    except AnabranchError as error:
        raise Stopped(fault_of(newest.sequence, error), is_final=True) from None
    gathering = _Gathering(target, places, published)
    later = [one for one in deltas if base is None or one.sequence > base.delta]
    for delta in reversed(later):
        try:
            gathering.take(delta)
        except AnabranchError as error:
            raise Stopped(fault_of(delta.sequence, error)) from None
    if base is not None and base.weights is not None:
        gathering.take_base(_weights_of(base, Path(base.weights)))
    on_phase("building")
    built = BuiltGraphs(cache / GRAPHS.path, GRAPHS.limit_bytes)
    weights = WeightFiles(cache / WEIGHTS.path, WEIGHTS.limit_bytes)
    last = gathering.last or newest.sequence
    try:
        made = updated_graphs(target, gathering.changes, places, built, weights)
    except AnabranchError as error:
        raise Stopped(fault_of(last, error)) from None
    target = replace(target, model=made.model, graphs=made.files)
    for delta in last_items(deltas):
        target = _with_items(target, delta, published, cache)
    notes: tuple[str, ...] = (made.note,) if made.note else ()
    if newest.golden:
        on_phase("comparing")
        notes += _golden(target, newest, published)
    return target, notes


def _weights_of(base: WeightState, path: Path) -> Mapping[str, NDArray[np.generic]]:
    """Return the weights of a state; where they are damaged, they are gone for the next try."""
    try:
        return read_weights(path)
    except AnabranchError as error:
        path.unlink(missing_ok=True)
        fault = fault_of(base.delta, Unavailable(error.message))
        raise Stopped(fault, is_final=True) from None


def _with_items(
    target: DeltaTarget, delta: Delta, published: Published, cache: Path
) -> DeltaTarget:
    try:
        files = published.files(delta, {one.file for one in delta.item_tables})
        items = ItemCache(cache / ITEMS.path, ITEMS.limit_bytes)
        ranking = with_new_items(target.ranking, target.meaning, files.folder, delta, items)
    except AnabranchError as error:
        raise Stopped(fault_of(delta.sequence, error)) from None
    return replace(target, ranking=ranking)


def _golden(target: DeltaTarget, delta: Delta, published: Published) -> tuple[str, ...]:
    try:
        files = published.files(delta, delta.golden)
        return delta_golden_notes(target, files.folder, delta)
    except AnabranchError as error:
        raise Stopped(fault_of(delta.sequence, error)) from None


class _Gathering:
    """The last word of deltas on each weight; owned by one call of `apply_further`."""

    def __init__(self, target: DeltaTarget, places: WeightPlaces, published: Published) -> None:
        self._places = places
        self._published = published
        self._is_strict = target.deployment.deltas.non_finite == "refuse"
        self._tensors: dict[str, NDArray[np.generic]] = {}
        self._rows: dict[str, list[RowChanges]] = {}
        self.last: int | None = None

    @property
    def changes(self) -> WeightChanges:
        """What was found."""
        return WeightChanges(self._tensors, self._rows)

    def take(self, delta: Delta) -> None:
        """Take a delta, before any that it follows.

        Raises:
            AnabranchError: it is at fault.
        """
        tables = [(table, self._find(table.name)) for table in delta.tables]
        dense = () if delta.dense is None else delta.dense.tensors
        weights = [(name, self._find(name)) for name in dense]
        tables = [(table, place) for table, place in tables if self._is_open(place)]
        weights = [(name, place) for name, place in weights if self._is_open(place)]
        needed = {table.file for table, _ in tables}
        if delta.dense is not None and weights:
            needed.add(delta.dense.file)
        if not needed:
            return
        files = self._published.files(delta, needed)
        self.last = self.last or delta.sequence
        for table, place in reversed(tables):
            with _fitting():
                place.check_rows(table.dim, table.deletes)
            changes = changed_rows(files, table)
            self._check(table.name, changes.values)
            self._rows.setdefault(place.name, []).insert(0, changes)
        found = changed_weights(files) if weights else {}
        for name, place in weights:
            with _fitting():
                place.check_tensor(found[name])
            self._check(name, found[name])
            self._tensors[place.name] = found[name]

    def take_base(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Take weights as of before all deltas that were taken."""
        self._tensors = {**weights, **self._tensors}

    def _find(self, name: str) -> WeightPlace:
        try:
            return self._places.find(name)
        except InvalidInput as error:
            raise DeltaConflict("unknown_table", error.message) from None

    def _is_open(self, place: WeightPlace) -> bool:
        """Whether a graph has it, and no later delta brings all of it."""
        return bool(place.graph) and place.name not in self._tensors

    def _check(self, name: str, numbers: NDArray[np.generic]) -> None:
        if self._is_strict and not np.isfinite(numbers).all():
            raise DeltaCorrupt(
                "non_finite",
                f"{name!r}: found numbers that are not finite (serving.yaml: deltas.non_finite: "
                "allow lets them in)",
            )


@contextmanager
def _fitting() -> Iterator[None]:
    """Say of what a check of shape and type refuses that it does not fit."""
    try:
        yield
    except InvalidInput as error:
        raise DeltaConflict("shape", error.message) from None
