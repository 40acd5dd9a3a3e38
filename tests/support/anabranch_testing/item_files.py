"""Item tables for tests, written as a version's are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow  # type: ignore[import-untyped]  # comes without types
import pyarrow.parquet  # type: ignore[import-untyped]  # comes without types

from anabranch_model_store.item_chunks import ItemFile
from anabranch_model_store.item_import import ItemSource, write_item_table
from anabranch_model_store.item_order import order_items
from anabranch_runtime.ranking.item_layout import ItemForm
from anabranch_runtime.ranking.plans import FeaturePlan, ItemTablePlan, SequencePlan

__all__ = ["write_items"]


def write_items(
    folder: Path,
    ids: Sequence[int] | Sequence[str],
    columns: Mapping[str, Sequence[object]],
    features: Sequence[FeaturePlan],
    sequences: Sequence[SequencePlan] = (),
) -> ItemTablePlan:
    """Write the item table of some features; return what a plan says of it.

    Args:
        folder: where it goes.
        ids: of items; at least one.
        columns: feature -> values, None where there is none.
        features: of the plan, those of the columns among them.
        sequences: that the table fills; a column of their own has one value an item.
    """
    types = {"int64": pyarrow.int64(), "float32": pyarrow.float32(), "string": pyarrow.string()}
    of_users = {sequence.feature for sequence in sequences}
    forms: dict[str, ItemForm] = {}
    arrays: dict[str, pyarrow.Array] = {"id": pyarrow.array(ids)}
    for feature in features:
        if feature.name in columns:
            ragged = feature.ragged is not None and feature.name not in of_users
            forms[feature.name] = ItemForm(feature.type, ragged=ragged)
            one = types[feature.type]
            arrays[feature.name] = pyarrow.array(
                columns[feature.name], pyarrow.list_(one) if ragged else one
            )
    path = folder / "items.parquet"
    pyarrow.parquet.write_table(pyarrow.table(arrays), path)
    file = ItemFile(path, path.name)
    order = order_items(file, "id", "string" if isinstance(ids[0], str) else "int64")
    names = {name: name for name in forms}
    source = ItemSource(file, order, "id", names, forms)
    write_item_table(source, folder, "items.arrow", lambda done: None)
    path = folder / "items.arrow"
    filled = {name: name for name in names if name not in of_users}
    return ItemTablePlan(str(path), filled, tuple(sequences), path.stat().st_size)
