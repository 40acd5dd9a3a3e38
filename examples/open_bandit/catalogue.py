"""The item table: what a server is to know of every item, so that callers send ids alone."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from open_bandit.impressions import ITEMS, Items

__all__ = ["write_catalogue"]


def write_catalogue(path: Path, items: Items) -> None:
    """Write `item_id` and the four features of each item, as raw as the data has them."""
    columns = {
        "item_id": pa.array(range(ITEMS), pa.int64()),
        "item_feature_0": pa.array(items.values, pa.float32()),
    }
    for k in range(items.groups.shape[1]):
        columns[f"item_feature_{k + 1}"] = pa.array(items.groups[:, k].tolist(), pa.string())
    pq.write_table(pa.table(columns), path)
