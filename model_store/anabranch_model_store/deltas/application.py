"""Deltas of a version applied: the fewest that lead to the newest, all of them as one change.

What is at fault is found before anything is changed, and deltas are applied up to it. Rows become
runs; whatever else deltas bring goes to `further_changes`, which is imported where it is needed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from anabranch_model_store.deltas.delta_rows import changed_rows, changed_weights
from anabranch_model_store.deltas.faults import Fault, fault_of, gap
from anabranch_model_store.deltas.lineages import Marks, is_published, mark_of, newest_of
from anabranch_model_store.deltas.origins import Origin
from anabranch_model_store.deltas.published import Published, Stopped, last_items
from anabranch_model_store.deltas.run_building import RunBuilding
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.runs import RunFile, RunTable, sorted_rows
from anabranch_model_store.deltas.store_tables import StoreTable, StoreTables
from anabranch_model_store.deltas.targets import DeltaTarget, RowChanges, Run
from anabranch_model_store.deltas.weight_states import MadeOf, WeightState, WeightStates
from anabranch_wire.delta import Delta
from anabranch_wire.errors import AnabranchError, Unavailable

__all__ = ["AppliedDeltas", "DeltaCaches", "DeltaPhase", "apply_deltas"]

DeltaPhase = Literal["fetching", "verifying", "importing", "building", "comparing"]
"""Reading headers; reading files; making runs; making graphs; running golden requests."""

_MOST: Final = 2**63 - 1
_LOOKED_AT: Final = 256
"""Of the deltas that cached runs are made of, the newest whose delta.json is read again."""


@dataclass(frozen=True, slots=True)
class DeltaCaches:
    """Where what comes of deltas is kept.

    Attributes:
        folder: the server's cache folder.
        runs: in it.
    """

    folder: Path
    runs: RunCache


@dataclass(frozen=True, slots=True, eq=False)
class AppliedDeltas:
    """What deltas made of a version.

    Attributes:
        target: at the newest one that could be applied; the same as before where none could be.
        newest: that one; None where none could be.
        increment: rows of exactly the deltas that were applied; None where the target's runs say
            them one by one, or there is no store.
        upserts: rows that they bring, each delta counted by itself.
        deletes: rows that they take out.
        bytes: of their files, as far as they were read.
        notes: what an operator should know, in words.
        fault: why they lead no further: of the next one, or of the newest cumulative one that would
            have led past it. None where nothing is left.
    """

    target: DeltaTarget
    newest: Delta | None = None
    increment: Run | None = None
    upserts: int = 0
    deletes: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()
    fault: Fault | None = None


def apply_deltas(
    target: DeltaTarget,
    upto: int,
    origin: Origin,
    caches: DeltaCaches,
    on_phase: Callable[[DeltaPhase], None] = lambda phase: None,
) -> AppliedDeltas:
    """Apply the deltas of a version up to one, or up to the first that cannot be.

    A delta that cannot be applied is passed by where a later one holds what it held.

    Args:
        target: the version as it is.
        upto: the newest delta to apply.
        origin: brings their files onto this machine.
        caches: where what comes of them is kept.
        on_phase: told what begins; on this thread.

    Raises:
        AnabranchError: it could not even be begun.
    """
    published = Published(target, origin)
    try:
        tables = StoreTables(target)
    except OSError as error:
        raise Unavailable(f"its rows cannot be opened: {error.strerror or error}") from None
    if upto <= target.snapshot.delta:
        return AppliedDeltas(target)
    refused: list[Delta] = []
    while True:
        attempt = _Attempt(target, published, tables, caches, on_phase)
        try:
            reached = attempt.reach(upto)
            attempt.fault = _of_way_past(attempt.fault, refused, published.faults)
            if reached == target.snapshot.delta:
                return AppliedDeltas(target, fault=attempt.fault)
            return attempt.result(reached)
        except Stopped as stop:
            if (lost := target.lost_file) is not None:
                text = f"{lost.name}, which the version is made of, has gone from the cache folder"
                fault = fault_of(stop.fault.sequence, Unavailable(text))
                return AppliedDeltas(target, fault=fault)
            if stop.is_final:
                return AppliedDeltas(target, fault=stop.fault)
            if (delta := published.header(stop.fault.sequence)) is not None:
                refused.append(delta)
            published.faults[stop.fault.sequence] = stop.fault  # and begin again without it


def _of_way_past(
    fault: Fault | None, refused: Iterable[Delta], faults: Mapping[int, Fault]
) -> Fault | None:
    """Return why the newest delta that would have led past one that is at fault does not."""
    if fault is None:
        return None
    past = [one.sequence for one in refused if one.replaces_from <= fault.sequence <= one.sequence]
    return faults[max(past)] if past else fault


class _Attempt:
    """One try to apply deltas; owned by one call of `apply_deltas`."""

    def __init__(
        self,
        target: DeltaTarget,
        published: Published,
        tables: StoreTables,
        caches: DeltaCaches,
        on_phase: Callable[[DeltaPhase], None],
    ) -> None:
        self._target = target
        self._published = published
        self._tables = tables
        self._caches = caches
        self._on_phase = on_phase
        self._building: RunBuilding | None = None
        if target.segment is not None:
            self._building = RunBuilding(caches.runs, target.identity, target.snapshot.delta)
        self._states = WeightStates(caches.folder / "deltas" / "states", target.identity)
        self._base: WeightState | None = None
        self._further: list[Delta] = []
        self._upserts = self._deletes = self._bytes = 0
        self.fault: Fault | None = None

    def reach(self, upto: int) -> int:
        """Gather what deltas bring; returns the newest of them.

        Raises:
            Stopped: one is at fault.
        """
        self._on_phase("fetching")
        reached = self._take_cached(upto)
        chain = self._published.chain(reached, upto)
        if chain.missing is not None:
            last = chain.deltas[-1] if chain.deltas else reached
            known = self._published.faults.get(chain.missing)
            self.fault = known or gap(chain.missing, last)
        if chain.deltas:
            self._on_phase("verifying")
        for sequence in chain.deltas:
            delta = self._published.header(sequence)
            assert delta is not None, "part of a chain"
            try:
                self._take(delta, is_last=sequence == chain.deltas[-1])
            except AnabranchError as error:
                self._keep()  # so that these are not read once more
                raise Stopped(fault_of(sequence, error)) from None
            except OSError as error:
                raise Stopped(fault_of(sequence, error), is_final=True) from None
            reached = sequence
        return reached

    def result(self, reached: int) -> AppliedDeltas:
        """Return what was gathered as one change.

        Raises:
            Stopped: a delta is at fault.
        """
        target, published = self._target, self._published
        newest = published.header(reached)
        if newest is None:
            raise Stopped(published.faults.get(reached) or gap(reached, reached - 1))
        pieces = self._keep()
        notes = self._replaced()
        made = replace(target, snapshot=replace(target.snapshot, delta=reached))
        if self._building is not None:
            made = replace(made, runs=(*self._runs_before(), *pieces))
        if self._further or newest.golden or self._base is not None:
            # The optimiser's and ONNX Runtime's modules take most of a second.
            from anabranch_model_store.deltas.further_changes import apply_further

            made, more = apply_further(
                made,
                self._further,
                newest,
                published,
                self._caches.folder,
                self._on_phase,
                self._base,
            )
            notes += more
            if self._further:
                self._note(reached, made)
        return AppliedDeltas(
            made,
            newest,
            pieces[0] if len(pieces) == 1 else None,
            self._upserts,
            self._deletes,
            self._bytes,
            notes,
            self.fault,
        )

    def _take_cached(self, upto: int) -> int:
        """Take what is in the cache already; returns the newest delta of it."""
        applied = self._target.snapshot.delta
        bad = [number for number in self._published.faults if number > applied]
        last = min([upto, *(number - 1 for number in bad)])
        if self._building is None:
            self._take_base(last)
            return applied if self._base is None else self._base.delta
        runs = self._caches.runs.cover(self._target.identity, applied + 1, last, self._is_meant)
        if runs:
            self._take_base(runs[-1].last)
        for run in runs:
            file = RunFile.open(run.path)
            self._upserts += sum(len(table.keys) for table in file.tables)
            self._deletes += sum(len(table.deleted) for table in file.tables)
            for number in file.others:
                if self._base is None or number > self._base.delta:
                    self._further.append(self._known(number))
        if runs:
            self._building.take(runs, runs[-1].last)
        return runs[-1].last if runs else applied

    def _take_base(self, last: int) -> None:
        """Take what the newest deltas up to one have brought beside rows, where that is known."""
        graphs = self._target.graphs
        if self._target.snapshot.delta or graphs is None or graphs.weights is not None:
            return
        self._base = self._states.newest(last, self._is_state_meant)
        if self._base is not None:
            self._further += [self._known(number) for number in self._base.items]

    def _is_meant(self, run: Run, marks: Marks, last: int) -> bool:
        """Whether a run is of what is published now, as far as that is looked at."""
        newest = newest_of(marks, last - _LOOKED_AT + 1)
        return bool(len(marks)) and is_published(newest, self._published)

    def _is_state_meant(self, state: WeightState) -> bool:
        """Likewise, of what deltas have brought beside rows."""
        return is_published(state.marks, self._published)

    def _known(self, number: int) -> Delta:
        """Return a delta that was applied before.

        Raises:
            Stopped: it cannot be read any more.
        """
        delta = self._published.header(number)
        if delta is None:
            raise Stopped(self._published.faults.get(number) or gap(number, number - 1))
        return delta

    def _note(self, reached: int, made: DeltaTarget) -> None:
        """Keep what deltas have brought beside rows, where all of them are known."""
        graphs, applied = self._target.graphs, self._target.snapshot.delta
        before = None if graphs is None or graphs.weights is None else str(graphs.weights)
        state = self._base if not applied else self._states.newest(applied)
        if applied and (state is None or state.weights != before):
            return
        items = [self._known(number) for number in (() if state is None else state.items)]
        items += [delta for delta in self._further if delta.item_tables and delta not in items]
        weights = None if made.graphs is None else made.graphs.weights
        path = None if weights is None else str(weights)
        last = tuple(delta.sequence for delta in last_items(items))
        made_of = {one.delta: one for one in (() if state is None else state.made_of)}
        made_of |= {one.sequence: MadeOf.of(one) for one in self._further}
        self._states.note(
            WeightState(
                delta=reached,
                weights=path,
                items=last,
                made_of=tuple(made_of[number] for number in sorted(made_of)),
            )
        )

    def _take(self, delta: Delta, *, is_last: bool) -> None:
        """Take a delta.

        Raises:
            AnabranchError: it is at fault.
            OSError: the cache folder cannot be written.
        """
        tables = self._tables
        mine = [table for table in delta.tables if tables.find(table.name) is not None]
        dense = () if delta.dense is None else delta.dense.tensors
        whole = [name for name in dense if tables.find(name) is not None]
        needed = {table.file for table in mine}
        if delta.dense is not None and whole:
            needed.add(delta.dense.file)
        # Of those that others follow, nothing is read that is not used in the end.
        files = self._published.files(delta, None if is_last else needed)
        rows: list[RunTable] = []
        for name in whole:
            table = tables.named(name)
            rows.append(_rows(name, table, table.every_row(name, changed_weights(files)[name])))
        for said in mine:
            rows.append(_rows(said.name, tables.named(said.name), changed_rows(files, said)))
        named = (*(table.name for table in delta.tables), *dense)
        has_more = bool(delta.item_tables) or not all(map(tables.has_all, named))
        if has_more:
            self._further.append(delta)
        if self._building is not None:
            self._building.add(delta.sequence, mark_of(delta), rows, has_more)
        # What nobody reads is counted as the delta says it is, which may be anything.
        self._upserts = _counted(self._upserts, (table.upserts for table in delta.tables))
        self._deletes = _counted(self._deletes, (table.deletes for table in delta.tables))
        self._bytes = _counted(self._bytes, (file.bytes for file in delta.files))

    def _keep(self) -> tuple[Run, ...]:
        """Return the runs of what was taken.

        Raises:
            Stopped: the cache folder cannot be written.
        """
        if self._building is None:
            return ()
        try:
            return self._building.finish()
        except OSError as error:
            raise Stopped(fault_of(self._building.last, error), is_final=True) from None

    def _replaced(self) -> tuple[str, ...]:
        """Say so where the delta that was served until now is published as another one."""
        if not self._target.runs:
            return ()
        last = self._target.runs[-1]
        try:
            newest = newest_of(self._caches.runs.marks_of(last), last.last)
        except AnabranchError:
            return ()
        if is_published(newest, self._published):
            return ()
        return (
            f"delta {last.last} was replaced after it had been applied; the new one comes with the "
            "next start",
        )

    def _runs_before(self) -> tuple[Run, ...]:
        """Return the runs of what was applied before, as long as they have become meanwhile."""
        applied = self._target.snapshot.delta
        runs = self._caches.runs.part_of(self._target.identity, self._target.runs)
        return runs if runs and runs[-1].last == applied else self._target.runs


def _counted(before: int, more: Iterable[int]) -> int:
    """Return a sum that messages can hold."""
    return min(before + sum(more), _MOST)


def _rows(name: str, table: StoreTable, changes: RowChanges) -> RunTable:
    """Return rows of a table, checked against what it is."""
    table.check(name, changes)
    return sorted_rows(table.number, changes)
