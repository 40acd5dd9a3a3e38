"""Models with tables whose answers tell which version's rows and which version's weights they met.

Every row of both tables holds one number, and the dense graph another: `low` and `high` are the
least and the greatest number that was looked up for a row of the request, `dense` is a weight.
"""

import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_testing.graphs import write_graph
from anabranch_testing.marked_rows import DIM, ROWS, TABLES, keys

__all__ = ["TABLES", "keys_of", "publish_telling_tables"]

_GRAPH: Final = (
    "telling (float[N, 8] emb) => (float[N, 1] low, float[N, 1] high, float[N, 1] dense) "
    "<float[8, 1] zero = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}, float[1] number = {VERSION.0}> {"
    " low = ReduceMin <axes = [1], keepdims = 1> (emb)"
    " high = ReduceMax <axes = [1], keepdims = 1> (emb)"
    " product = MatMul(emb, zero) dense = Add(product, number) }"
)

_MODEL_YAML: Final = """format: 1
features:
  - {name: a, side: candidate, type: int64}
  - {name: b, side: candidate, type: int64}
lookups:
  - {feature: a, table: a, combiner: sum, output: {input: emb, columns: [0, 4]}}
  - {feature: b, table: b, combiner: sum, output: {input: emb, columns: [4, 8]}}
"""


def keys_of(table: int, rows: int = ROWS) -> NDArray[np.int64]:
    """Return the keys (rows,) of a table, those of `marked_rows` first."""
    marked = keys(table)
    more = np.arange(1, max(rows - len(marked), 0) + 1, dtype=np.int64)
    return np.concatenate([marked, more])


def publish_telling_tables(
    model_dir: Path, version: int, rows: int = ROWS, *, number: int | None = None
) -> None:
    """Publish a version whose every row and whose weight is one number, up to 2^24.

    Args:
        model_dir: folder of the model.
        version: its number.
        rows: of each of the two tables; `ROWS` of them can be marked anew.
        number: what they are; None: the version's own number.
    """
    told = version if number is None else number
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "model.yaml").write_text(_MODEL_YAML)
        tables = {}
        for index, name in enumerate(TABLES):
            known = keys_of(index, rows)
            tables[name] = Rows(known, np.full((len(known), DIM), told, np.float32))
        publish_version(
            model_dir,
            write_graph(folder, _GRAPH.replace("VERSION", str(told))),
            version=version,
            model_yaml=folder / "model.yaml",
            tables=tables,
        )
