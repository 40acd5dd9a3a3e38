"""A version that ranks items by rows, a weight and an item table, and deltas that change all three.

Its score of an item is the sum of the item's row, plus its price times `w`: numbers that are exact.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # comes without types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # comes without types

from anabranch_model_store.deltas.application import AppliedDeltas, DeltaCaches, apply_deltas
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_publish import Publisher
from anabranch_testing.delta_targets import DeltaShop
from anabranch_testing.graphs import write_graph

__all__ = ["RankedShop", "items_file"]

_ROWS = ", ".join(str(float(row)) for row in range(16))
_GRAPH = (
    "g (int64[N] item_id, float[N] price) => (float[N] y) "
    f"<float[8, 2] emb = {{{_ROWS}}}, float[1] w = {{10.0}}, int64 rows = {{8}}, "
    "int64[1] axis = {1}> { row = Mod(item_id, rows) e = Gather(emb, row) "
    "s = ReduceSum <keepdims: int = 0> (e, axis) p = Mul(price, w) y = Add(s, p) }"
)
_MEANING: dict[str, Any] = {
    "optimize": {"min_table_bytes": 0},
    "features": [
        {"name": "item_id", "side": "candidate", "type": "int64"},
        {"name": "price", "side": "candidate", "type": "float32", "default": 0.0},
    ],
    "item_tables": {
        "items": {"file": "items/0000.parquet", "key": "id", "columns": {"price": "price"}},
        "unused": {"file": "items/0001.parquet", "key": "id", "columns": {}},
    },
    "ranking": {"id": "item_id", "score": {"output": "y"}, "item_table": "items"},
}


class RankedShop:
    """The version, whoever publishes deltas for it, and whoever applies them."""

    def __init__(self, root: Path, serving: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self._shop = DeltaShop(root)
        folder = self._shop.folder()
        write_graph(folder, _GRAPH)
        (folder / "items").mkdir()
        for number in (0, 1):
            items_file(folder / "items" / f"000{number}.parquet", {1: 1.0, 2: 2.0, 3: 3.0})
        (folder / "model.yaml").write_text(json.dumps(_MEANING))
        (folder.parent / "serving.yaml").write_text(json.dumps(serving or {}))
        self.target: DeltaTarget = self._shop.target()

    def publish(
        self,
        rows: Mapping[int, Sequence[float]] | None = None,
        weight: float | None = None,
        items: Mapping[str, Path] | None = None,
        golden: Sequence[Mapping[int, float]] = (),
    ) -> int:
        """Publish a delta; golden requests are scores of items."""
        files = []
        for number, scores in enumerate(golden):
            path = self.root / f"golden-{number}.json"
            request = {"candidates": {"item_id": list(scores)}}
            path.write_text(json.dumps({"request": request, "scores": {"y": [*scores.values()]}}))
            files.append(path)
        with Publisher(self._shop.model_folder, version=1) as publisher:
            delta = publisher.delta(golden=files, item_tables=items or {})
            if rows:
                values = np.array(list(rows.values()), np.float32)
                delta.upsert("emb", np.array(list(rows)), values)
            if weight is not None:
                delta.dense({"w": np.array([weight], np.float32)})
            return delta.publish()

    def apply(self, upto: int, target: DeltaTarget | None = None) -> AppliedDeltas:
        """Apply deltas up to one."""
        cache = self.root / "cache"
        caches = DeltaCaches(cache, RunCache(cache / "deltas", 1 << 30))
        return apply_deltas(target or self.target, upto, LocalOrigin(), caches)

    def with_golden(self, policy: Any) -> DeltaTarget:
        """The version under another policy of golden requests."""
        deployment = type(self.target.deployment)(golden=policy)
        return replace(self.target, deployment=deployment)


def items_file(path: Path, prices: Mapping[int, float], column: str = "price") -> Path:
    """Write an item table: id -> price."""
    kind = pa.float32() if all(isinstance(one, float) for one in prices.values()) else pa.string()
    ids = pa.array(list(prices), pa.int64())
    pq.write_table(pa.table({"id": ids, column: pa.array(list(prices.values()), kind)}), path)
    return path
