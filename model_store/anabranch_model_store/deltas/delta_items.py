"""Item tables that deltas replace whole: imported, and checked against what features expect.

What is made of an item table goes with it: attributes of candidates, and the side information of
sequences of users. So all of it is of one table, before and after the switch.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from anabranch_model_store.deltas.attempt_files import attempt_files
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.item_tables import import_item_table
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_wire.delta import Delta
from anabranch_wire.errors import InvalidInput

__all__ = ["check_item_names", "with_new_items"]


def with_new_items(
    plan: RankingPlan | None,
    meaning: ModelMeaning,
    folder: Path,
    delta: Delta,
    cache: ItemCache,
    on_bytes: Callable[[int, int], None] = lambda done, total: None,
) -> RankingPlan | None:
    """Return a ranking with the item table that a delta brings, imported.

    A table that model.yaml declares, but no ranking reads, is left alone, as it is in a version.

    Args:
        plan: of the version, with the item table that it has; None where it does not rank.
        meaning: its model.yaml, which says what the columns of the new table must be.
        folder: of the delta's attempt, whose files were found to be right.
        delta: as it was published.
        cache: of item tables.
        on_bytes: told how many bytes of how many are done, roughly.

    Raises:
        InvalidInput: there is no such item table, the file is no Parquet file, lacks a column, or
            holds what a feature cannot take; the message names file, column, found and expected.
        Unavailable: a file cannot be read, or the cache not be written.
    """
    check_item_names(meaning, delta)
    used = None if meaning.ranking is None else meaning.ranking.item_table
    new = next((one for one in delta.item_tables if one.name == used), None)
    if plan is None or used is None or new is None:
        return plan
    table = structs.replace(meaning.item_tables[used], file=new.file)
    there = structs.replace(meaning, item_tables={**meaning.item_tables, used: table})
    made = import_item_table(there, attempt_files(folder, delta), cache, on_bytes)
    return structs.replace(plan, item_table=made)


def check_item_names(meaning: ModelMeaning, delta: Delta) -> None:
    """Check that model.yaml declares the item tables of a delta.

    Raises:
        InvalidInput: it does not declare one; names those that it does.
    """
    for one in delta.item_tables:
        if one.name not in meaning.item_tables:
            known = ", ".join(map(repr, meaning.item_tables)) or "none"
            raise InvalidInput(f"there is no item table {one.name!r}; model.yaml declares {known}")
