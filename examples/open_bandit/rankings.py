"""Ranking requests as a caller sends them, and what their raw values become by the trainer's code.

Nothing here knows the server: golden requests are worth something because two programs that share
no code come to the same keys. Keys are those of `features`, the rest is the layout of a request.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from open_bandit.features import BAG, Inputs, hash_key
from open_bandit.impressions import ITEMS, Impressions, Items

__all__ = ["Keys", "Ranking", "inputs_of", "keys_of", "ranking_of", "shortest"]

_USER_FEATURES: Final = tuple(f"user_feature_{k}" for k in range(4))
_ITEM_FEATURES: Final = tuple(f"item_feature_{k}" for k in range(1, 4))
_NO_ITEM: Final = 0
_FIRST_PLACE: Final = 1

Keys = dict[str, list[Any]]
"""Feature -> what it becomes, one entry a row: one for a user's feature, else one a candidate."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """One request.

    Attributes:
        user: feature -> raw value.
        candidates: feature -> raw values, one for each candidate.
    """

    user: dict[str, Any]
    candidates: dict[str, list[Any]]


def ranking_of(impressions: Impressions, row: int, position: int) -> Ranking:
    """Ask for all items for the user of one impression, at one place on the page.

    Users without past clicks send neither `clicked_items` nor `affinity`: defaults stand for them.
    """
    affinities = impressions.affinities[row]
    user: dict[str, Any] = {
        name: str(group)
        for name, group in zip(_USER_FEATURES, impressions.groups[row], strict=True)
    }
    candidates: dict[str, list[Any]] = {"item_id": list(range(ITEMS))}
    if affinities.any():
        order = np.argsort(-affinities, kind="stable")
        user["clicked_items"] = [int(k) for k in order if affinities[k] > 0]
        candidates["affinity"] = [shortest(affinity) for affinity in affinities]
    if position != _FIRST_PLACE:
        user["position"] = position
    return Ranking(user, candidates)


def keys_of(ranking: Ranking, items: Items) -> Keys:
    """Return what every feature of a request becomes.

    Args:
        ranking: the request.
        items: have the features of items that the request does not send.
    """
    user, candidates = ranking.user, ranking.candidates
    ids: list[int] = candidates["item_id"]
    keys: Keys = {name: [hash_key(user[name])] for name in _USER_FEATURES}
    clicked = [_item_key(item_id) for item_id in user.get("clicked_items", [])][:BAG]
    keys["clicked_items"] = [clicked + [_NO_ITEM] * (BAG - len(clicked))]
    keys["position"] = [user.get("position", _FIRST_PLACE)]
    keys["item_id"] = [_item_key(item_id) for item_id in ids]
    keys["affinity"] = candidates.get("affinity", [0.0] * len(ids))
    values = candidates.get("item_feature_0")
    keys["item_feature_0"] = values or [shortest(items.values[item_id]) for item_id in ids]
    for k, name in enumerate(_ITEM_FEATURES):
        texts = candidates.get(name) or [str(items.groups[item_id][k]) for item_id in ids]
        keys[name] = [hash_key(text) for text in texts]
    return keys


def inputs_of(keys: Keys) -> Inputs:
    """Return the model's inputs, one row a candidate."""
    rows = len(keys["item_id"])
    user = [keys[name][0] for name in _USER_FEATURES]
    return {
        "user_features": np.tile(np.array(user, np.int64), (rows, 1)),
        "item_id": np.array(keys["item_id"], np.int64),
        "item_features": np.array([keys[name] for name in _ITEM_FEATURES], np.int64).T,
        "item_value": np.array(keys["item_feature_0"], np.float32)[:, None],
        "position": np.repeat(np.array(keys["position"], np.int64), rows),
        "affinity": np.array(keys["affinity"], np.float32)[:, None],
        "top_items": np.tile(np.array(keys["clicked_items"], np.int64), (rows, 1)),
    }


def shortest(number: np.float32) -> float:
    """The float with the fewest digits that becomes `number` again as float32."""
    return float(str(number))


def _item_key(item_id: int) -> int:
    return item_id + 1 if 0 <= item_id < ITEMS else _NO_ITEM
