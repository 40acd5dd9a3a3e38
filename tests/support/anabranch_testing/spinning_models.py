"""A model that ranks, and takes as long as its user says."""

from pathlib import Path
from typing import Final

from anabranch_testing.graphs import write_graph

__all__ = ["SPINNING", "write_spinning_model"]

SPINNING: Final = """
spin (float[N, 1] age, float[N, 1] spins, int64[N, 1] item, float[N, 1] price, float[N, 2] shape,
      int64[N, 4] tags) => (float[N, 1] ctr, float[N, 2] both)
<float most = {20000.0}, float none = {0.0}, int64[1] three = {3}, int64[2] square = {160, 160},
 bool yes = {1}> {
  wanted = ReduceMax <keepdims: int = 0> (spins)
  bounded = Min(wanted, most)
  trips = Cast <to: int = 7> (bounded)
  start = ConstantOfShape (square)
  spun = Loop (trips, yes, start) <body = turn (int64 i, bool go, float[160, 160] m)
    => (bool on, float[160, 160] next) { on = Identity(go) next = MatMul(m, m) }>
  sum = ReduceSum <keepdims: int = 0> (spun)
  counted = Gather <axis: int = 1> (tags, three)
  tagged = Cast <to: int = 1> (counted)
  known = Cast <to: int = 1> (item)
  nothing = Mul(known, none)
  priced = Add(age, price)
  full = Add(priced, tagged)
  idle = Add(full, nothing)
  ctr = Add(idle, sum)
  both = Add(shape, price)
}
"""
"""ctr = age + price + number of tags; both = shape + price, after `spins` rounds of some 100 us."""

_MEANING: Final = """
format: 1
user_inputs: [age, spins]
row_independent: false
optimize: {split: "off", user_once: "off"}
features:
  - {name: age, side: user, type: float32, default: 30}
  - {name: spins, side: user, type: float32, default: 0}
  - {name: item_id, side: candidate, type: int64, input: item}
  - {name: price, side: candidate, type: float32}
  - {name: shape, side: candidate, type: float32, shape: [2], default: [0, 0]}
  - name: tags
    side: candidate
    type: int64
    default: []
    ragged: {max_length: 3, keep: first, pad_to: 3, padding: 0}
    input: {name: tags, columns: [0, 3], length_column: 3}
ranking: {id: item_id, score: {output: ctr}, order: descending}
"""


def write_spinning_model(folder: Path, *, serving: str = "") -> Path:
    """Write version 1 of the model below `folder` and return its folder.

    Args:
        folder: of the model, in a repository.
        serving: its serving.yaml.
    """
    write_graph(folder / "1", SPINNING)
    (folder / "1" / "model.yaml").write_text(_MEANING)
    (folder / "serving.yaml").write_text(f"format: 1\n{serving}")
    return folder / "1"
