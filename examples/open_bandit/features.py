"""From raw values to the model's inputs; the one place that knows how a key is made.

Strings become keys by xxh64 (seed 0) of their UTF-8 bytes modulo `BUCKETS`. Items have the key
item id + 1, so that key 0 can stand for "no item" in a padded bag.
"""

from typing import Final, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from open_bandit.impressions import ITEMS, Impressions, Items

__all__ = [
    "BAG",
    "BUCKETS",
    "Inputs",
    "candidate_inputs",
    "hash_key",
    "impression_inputs",
    "top_items",
]

BUCKETS: Final = 2048
"""Rows of each hashed table."""

BAG: Final = 5
"""Length of the padded bag of a user's top items; no user of the sample has more than four."""

Inputs: TypeAlias = dict[str, NDArray[np.int64] | NDArray[np.float32]]
"""Name of a graph input -> its array; axis 0 is the row."""


def hash_key(text: str) -> int:
    """Key of `text`, 0 to `BUCKETS` - 1: unsigned xxh64 with seed 0, modulo `BUCKETS`."""
    return xxhash.xxh64_intdigest(text.encode(), seed=0) % BUCKETS


def top_items(affinities: NDArray[np.float32]) -> NDArray[np.int64]:
    """Keys of each user's items with the highest affinity.

    Args:
        affinities: (N, 80).

    Returns:
        (N, BAG) int64: keys of items with an affinity above 0, highest first, the lower item id
        first among equals; padded with key 0.
    """
    order = np.argsort(-affinities, axis=1, kind="stable")[:, :BAG]
    present = np.take_along_axis(affinities, order, axis=1) > 0
    return np.where(present, order + 1, 0).astype(np.int64)


def impression_inputs(impressions: Impressions, items: Items) -> Inputs:
    """Inputs of one row an impression."""
    return _inputs(
        user_groups=impressions.groups,
        affinities=impressions.affinities,
        item_ids=impressions.item_ids,
        positions=impressions.positions,
        items=items,
    )


def candidate_inputs(impressions: Impressions, user: int, items: Items, position: int) -> Inputs:
    """Inputs of 80 rows: every item, as if shown at `position` to the user of one impression.

    Args:
        impressions: the log.
        user: row of the impression in the log.
        items: the catalogue.
        position: 1 to 3.
    """
    return _inputs(
        user_groups=np.repeat(impressions.groups[user : user + 1], ITEMS, axis=0),
        affinities=np.repeat(impressions.affinities[user : user + 1], ITEMS, axis=0),
        item_ids=np.arange(ITEMS),
        positions=np.full(ITEMS, position),
        items=items,
    )


def _inputs(
    user_groups: NDArray[np.str_],
    affinities: NDArray[np.float32],
    item_ids: NDArray[np.int64],
    positions: NDArray[np.int64],
    items: Items,
) -> Inputs:
    return {
        "user_features": _hash_keys(user_groups),
        "item_id": item_ids + 1,
        "item_features": _hash_keys(items.groups)[item_ids],
        "item_value": items.values[item_ids, None],
        "position": positions.astype(np.int64),
        "affinity": np.take_along_axis(affinities, item_ids[:, None], axis=1),
        "top_items": top_items(affinities),
    }


def _hash_keys(texts: NDArray[np.str_]) -> NDArray[np.int64]:
    """`hash_key` of every element; same shape."""
    distinct, place = np.unique(texts, return_inverse=True)
    keys = np.array([hash_key(str(text)) for text in distinct], np.int64)
    return keys[place].reshape(texts.shape)
