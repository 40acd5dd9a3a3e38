"""Which keys of a ranking request have no row: asked of the store afterwards, key by key.

Batches count misses of all their requests together. Whoever asks about one request gets its keys
looked up once more, at the store version that its batch read, and nothing on the hot path changes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan
from anabranch_runtime.ranking.requests import Missed
from anabranch_runtime.ranking.rules import PreparedRanking
from anabranch_runtime.row_source import RowSource, StoreView
from anabranch_runtime.sent_features import LENGTHS
from anabranch_wire.lookups import Lookup
from anabranch_wire.missing import Original, Refuse
from anabranch_wire.plan import PlanTable

__all__ = ["all_missed", "missing_keys"]

Array = NDArray[np.generic]

_ROWS_NUMBERS: Final = 1 << 18
"""Numbers of table rows that are held at a time."""


def missing_keys(
    plan: RankingPlan,
    arrays: Mapping[str, Array],
    source: RowSource | CutSource | None,
    bad: Collection[int] = (),
) -> dict[str, Missed]:
    """Return the keys of each feature that a lookup found no row for; any thread.

    A key counts each time that it was sent, and once however many tables lack it; of a feature with
    several hashes each of its keys counts. Padding does not. Left out are features without misses,
    keys that the graph makes itself before they are looked up, and tables that no key may be
    missing from, since their requests fail.

    Args:
        plan: of the ranking.
        arrays: the request's, as `FeatureProgram` made them.
        source: what its batch read; whoever holds the served version keeps it readable.
        bad: candidates that are not looked at.

    Returns:
        Feature -> what was missed, in the plan's order.
    """
    if source is None:
        return {}
    if isinstance(source, RowSource):
        masks = _masks_of_features(arrays, source)
    else:
        masks = _masks_of_inputs(arrays, source)
    found: dict[str, Missed] = {}
    for feature in plan.features:
        misses = list(_misses(plan, feature, arrays, masks))
        is_user = feature.side == "user"
        if is_user:  # a user's row may stand there for each candidate
            misses = [rows[rows == 0] for rows in misses]
        rows = np.concatenate([np.empty(0, np.intp), *misses])
        if bad and not is_user:
            rows = rows[~np.isin(rows, list(bad))]
        if len(rows):
            candidates = () if is_user else tuple(np.unique(rows).tolist())
            found[feature.name] = Missed(len(rows), user=is_user, candidates=candidates)
    return found


def all_missed(
    plan: RankingPlan, prepared: PreparedRanking, source: RowSource | CutSource | None
) -> dict[str, Missed]:
    """Return what tables of the model and the item table lack for a request; any thread.

    Args:
        plan: of the ranking.
        prepared: the request.
        source: what its batch read; whoever holds the served version keeps it readable.

    Returns:
        Feature -> what was missed, in the plan's order; an id that both lack counts once.
    """
    tables = missing_keys(plan, prepared.arrays, source, prepared.bad)
    items = prepared.missed
    joined: dict[str, Missed] = {}
    for feature in plan.features:
        known = [one[feature.name] for one in (tables, items) if feature.name in one]
        if len(known) == 1:
            joined[feature.name] = known[0]
        elif known:
            table, item = known
            if table.user:  # which of a user's ids both lack is not known
                joined[feature.name] = Missed(max(table.keys, item.keys), user=True)
                continue
            candidates = tuple(sorted({*table.candidates, *item.candidates}))
            added = len(candidates) - len(table.candidates)
            joined[feature.name] = Missed(table.keys + added, table.user, candidates)
    return joined


@dataclass(frozen=True, slots=True, eq=False)
class _Mask:
    """Which ids of an input no row was found for.

    Attributes:
        absent: (rows, ids of a row), or (ids,) where rows differ in their number of ids.
        rows: of each id, of the same shape.
    """

    absent: NDArray[np.bool_]
    rows: NDArray[np.intp]


def _misses(
    plan: RankingPlan,
    feature: FeaturePlan,
    arrays: Mapping[str, Array],
    masks: Mapping[str, _Mask],
) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of ids without a row in a table."""
    for name in feature.keys:
        mask = masks.get(name)
        if mask is not None:
            yield mask.rows[mask.absent]
    ragged = feature.ragged
    width = prod(feature.shape) if ragged is None else ragged.pad_to or 0
    for sink in feature.values:
        name = plan.tensors[sink.tensor].name
        mask = masks.get(name)
        if mask is None:
            continue
        columns = slice(sink.column, sink.column + width)
        absent = mask.absent[:, columns]
        if ragged is not None:
            ids = arrays[name].reshape(mask.absent.shape)[:, columns]
            absent = absent & (ids != ragged.padding)
        yield mask.rows[:, columns][absent]


def _masks_of_features(arrays: Mapping[str, Array], source: RowSource) -> dict[str, _Mask]:
    """Return a mask for each looked-up feature of a model that is told its lookups."""
    tables = source.lookups.plan.tables
    masks: dict[str, _Mask] = {}
    for lookup in source.lookups.plan.lookups:
        name, table = lookup.ids.input, tables[lookup.table]
        if name not in arrays or _refuses(table):
            continue
        ids = arrays[name].reshape(-1).astype(np.int64, copy=False)
        if name not in masks:
            lengths = arrays.get(name + LENGTHS)
            masks[name] = _Mask(np.zeros(ids.shape, np.bool_), _rows(lookup, ids, lengths))
        masks[name].absent[...] |= _absent(source.view, table, ids)
    return masks


def _rows(lookup: Lookup, ids: Array, lengths: Array | None) -> NDArray[np.intp]:
    if lengths is None:
        return np.arange(len(ids)) // lookup.max_length
    return np.repeat(np.arange(len(lengths)), lengths.astype(np.int64, copy=False))


def _masks_of_inputs(arrays: Mapping[str, Array], source: CutSource) -> dict[str, _Mask]:
    """Return a mask for each input of a cut model that ids are looked up from."""
    cut = source.cut
    masks: dict[str, _Mask] = {}
    for lookup, read, bag in zip(cut.plan.lookups, cut.reads, cut.bags, strict=True):
        table = cut.plan.tables[lookup.table]
        name = "" if read.of_prelude else cut.inputs[read.index].name
        if name not in arrays or bag is not None or _refuses(table):
            continue
        array = arrays[name]
        numbers = array.reshape(len(array), -1) if len(array) else array.reshape(0, 1)
        if name not in masks:
            rows = np.arange(len(numbers))[:, None]
            masks[name] = _Mask(
                np.zeros(numbers.shape, np.bool_), np.broadcast_to(rows, numbers.shape)
            )
        columns = slice(*read.columns)
        with np.errstate(invalid="ignore"):  # of the rows of candidates at fault
            ids = numbers[:, columns].astype(np.int64) + lookup.ids.add
        masks[name].absent[:, columns] |= _absent(source.view, table, ids)
    return masks


def _refuses(table: PlanTable) -> bool:
    return isinstance(table.missing, Original | Refuse)


def _absent(view: StoreView, table: PlanTable, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which ids have no row in a table, of the same shape; padding has one."""
    generation = view.generation
    names: Sequence[str] = [one.name for one in generation.tables]
    number = names.index(table.name)
    distinct, places = np.unique(ids, return_inverse=True)
    found = np.zeros(len(distinct), np.bool_)
    step = max(1, _ROWS_NUMBERS // table.dim)
    for begin in range(0, len(distinct), step):
        part = slice(begin, begin + step)
        found[part] = generation.rows(number, distinct[part], view.version)[1]
    if table.padding_key is not None:
        found |= distinct.view(np.uint64) == np.uint64(table.padding_key % 2**64)
    return ~found[places.reshape(ids.shape)]
