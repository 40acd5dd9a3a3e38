"""The click model in NumPy: scores, and the gradient of the log-loss: `network.py` without torch.

Scores are those of the ONNX file up to the rounding of float32; a test holds them against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from open_bandit.features import Inputs
from open_bandit.live.weights import (
    ITEM_FEATURE_TABLES,
    ITEM_TABLE,
    POSITION_TABLE,
    USER_TABLES,
    Real,
    Weights,
)

__all__ = ["Gradient", "RowGradient", "gradient", "score"]

_DIM: Final = 8
_SINGLE: Final = (*USER_TABLES, *ITEM_FEATURE_TABLES, ITEM_TABLE, POSITION_TABLE)
"""Tables that give one row to each scored row, in the order in which they are joined."""

_ITEM: Final = _SINGLE.index(ITEM_TABLE) * _DIM
_BAG: Final = len(_SINGLE) * _DIM
_PRODUCT: Final = _BAG + _DIM


class RowGradient(NamedTuple):
    """Gradient of a table, where it is not zero by construction.

    Attributes:
        keys: (K,) int64; row numbers, ascending, each once.
        values: (K, 8).
    """

    keys: NDArray[np.int64]
    values: Real


@dataclass(frozen=True, slots=True)
class Gradient:
    """Of the mean log-loss of some rows.

    Attributes:
        loss: the mean log-loss itself, in nats.
        rows: table -> gradient of the rows that were looked up.
        dense: weight -> gradient in its shape.
    """

    loss: float
    rows: Mapping[str, RowGradient]
    dense: Mapping[str, Real]


@dataclass(frozen=True, slots=True, eq=False)
class _Forward:
    """What the way back needs of the way forward, of N rows.

    Attributes:
        keys: table -> (N,) row numbers; of tables that give one row each.
        present: (N, L, 1); 1 where the bag has an item.
        joined: (N, 90); the input of the hidden layer.
        hidden: (N, 32); its output.
        scores: (N, 1); probabilities.
    """

    keys: Mapping[str, NDArray[np.int64]]
    present: Real
    joined: Real
    hidden: Real
    scores: Real


def score(weights: Weights, inputs: Inputs) -> Real:
    """Probabilities (N,) of N rows, in the type of the weights."""
    return _forward(weights, inputs).scores[:, 0]


def gradient(weights: Weights, inputs: Inputs, clicks: NDArray[np.float32]) -> Gradient:
    """Return loss and gradient on N rows.

    Args:
        weights: are only read.
        inputs: name -> (N, ...) of every model input, N at least 1.
        clicks: (N,), 1 or 0.
    """
    held = _forward(weights, inputs)
    scores, affinity = held.scores, inputs["affinity"]
    likely = np.where(clicks[:, None] == 1, scores, 1 - scores.astype(np.float64))
    on_logit = (scores - clicks[:, None]) / len(clicks)
    on_hidden = (on_logit @ weights["out.weight"]) * (held.hidden > 0)
    on_joined = on_hidden @ weights["hidden.weight"]
    dense = {
        "hidden.weight": on_hidden.T @ held.joined,
        "hidden.bias": on_hidden.sum(axis=0),
        "out.weight": on_logit.T @ held.hidden,
        "out.bias": on_logit.sum(axis=0),
        "wide.weight": on_logit.T @ affinity,
    }
    return Gradient(
        loss=float(-np.log(likely).mean()),
        rows=_row_gradients(held, on_joined, inputs["top_items"].astype(np.int64)),
        dense={name: value.astype(weights[name].dtype) for name, value in dense.items()},
    )


def _row_gradients(
    held: _Forward, on_joined: Real, top_items: NDArray[np.int64]
) -> Mapping[str, RowGradient]:
    """Sum what comes back to the rows of each table; those of items have two more ways."""
    item, bag = _part(held.joined, _ITEM), _part(held.joined, _BAG)
    on_product = _part(on_joined, _PRODUCT)
    parts = {name: (held.keys[name], _part(on_joined, k * _DIM)) for k, name in enumerate(_SINGLE)}
    items, on_items = parts[ITEM_TABLE]
    on_bag = _part(on_joined, _BAG) + on_product * item
    on_each = (on_bag / held.present.sum(axis=1).clip(1))[:, None] * held.present
    is_present = top_items != 0
    parts[ITEM_TABLE] = (
        np.concatenate([items, top_items[is_present]]),
        np.concatenate([on_items + on_product * bag, on_each[is_present]]),
    )
    return {name: _summed(keys, values) for name, (keys, values) in parts.items()}


def _summed(keys: NDArray[np.int64], values: Real) -> RowGradient:
    distinct, place = np.unique(keys, return_inverse=True)
    sums = np.zeros((len(distinct), values.shape[1]), values.dtype)
    np.add.at(sums, place, values)
    return RowGradient(distinct, sums)


def _forward(weights: Weights, inputs: Inputs) -> _Forward:
    user, item = inputs["user_features"], inputs["item_features"]
    of_tables = {name: user[:, k] for k, name in enumerate(USER_TABLES)}
    of_tables |= {name: item[:, k] for k, name in enumerate(ITEM_FEATURE_TABLES)}
    of_tables |= {ITEM_TABLE: inputs["item_id"], POSITION_TABLE: inputs["position"]}
    keys = {name: of_tables[name].astype(np.int64) for name in _SINGLE}
    top_items = inputs["top_items"].astype(np.int64)
    real = weights[ITEM_TABLE].dtype
    present = (top_items != 0)[:, :, None].astype(real)
    bag = (weights[ITEM_TABLE][top_items] * present).sum(axis=1) / present.sum(axis=1).clip(1)
    fields = [weights[name][keys[name]] for name in _SINGLE]
    fields += [bag, fields[_SINGLE.index(ITEM_TABLE)] * bag]
    fields += [inputs[name].astype(real) for name in ("item_value", "affinity")]
    joined = np.concatenate(fields, axis=1)
    hidden = np.maximum(joined @ weights["hidden.weight"].T + weights["hidden.bias"], 0)
    logit = hidden @ weights["out.weight"].T + weights["out.bias"]
    logit = logit + inputs["affinity"].astype(real) @ weights["wide.weight"].T
    return _Forward(keys, present, joined, hidden, 1 / (1 + np.exp(-logit)))


def _part(joined: Real, begin: int) -> Real:
    return joined[:, begin : begin + _DIM]
