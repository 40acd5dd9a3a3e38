"""Golden requests: raw values, with the keys and scores that this trainer has for them.

A server that is to serve the version runs them first, through its own hashing and lookups and the
exported graph, and refuses the version at the first difference. So every rule that makes a key has
a value here that tells it from its neighbours: names that no training row has, the empty one and
one that is not ASCII, a bag that is too long and one that is empty, an item that does not exist.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from open_bandit.features import BAG, Inputs
from open_bandit.impressions import Impressions, Items
from open_bandit.rankings import Ranking, inputs_of, keys_of, ranking_of, shortest

__all__ = ["OUTPUT", "golden_rankings", "write_golden"]

OUTPUT: Final = "click"
"""The head whose scores are recorded."""

_MAX_ABS_DIFF: Final = 1e-6
"""Scores are near 0.005; float32 sums in another order differ by less than a tenth of this."""

Score = Callable[[Inputs], NDArray[np.float32]]


def golden_rankings(users: Impressions) -> Iterator[Ranking]:
    """Yield the requests: two real users with all items, and one who is all edges.

    Args:
        users: at least one with past clicks and one without.
    """
    has_history = users.affinities.any(axis=1)
    yield ranking_of(users, int(np.argmax(has_history)), position=1)
    yield ranking_of(users, int(np.argmin(has_history)), position=3)
    yield Ranking(
        user={
            "user_feature_0": "",
            "user_feature_1": "größe 42",
            "user_feature_2": "0123456789abcdef" * 8,
            "user_feature_3": "cef3390ed299c09874189c387777674a",
            "clicked_items": [41, 80, 3, 79, 0, 12, 60][: BAG + 2],
            "position": 2,
        },
        candidates={
            "item_id": [0, 41, 79],
            "affinity": [1.0, 3.0, 0.5],
            "item_feature_1": ["", "größe 42", "0123456789abcdef" * 8],
        },
    )


def write_golden(
    folder: Path, rankings: Iterator[Ranking], items: Items, score: Score
) -> list[Path]:
    """Write one file for each request and return their paths.

    Args:
        folder: where to.
        rankings: the requests.
        items: the catalogue.
        score: model inputs of N rows -> (N,) probabilities.
    """
    paths = []
    for number, ranking in enumerate(rankings):
        keys = keys_of(ranking, items)
        document = {
            "request": {"user": ranking.user, "candidates": ranking.candidates},
            "keys": keys,
            "scores": {OUTPUT: [shortest(one) for one in score(inputs_of(keys))]},
            "max_abs_diff": _MAX_ABS_DIFF,
        }
        path = folder / f"{number:04}.json"
        path.write_text(json.dumps(document, ensure_ascii=False) + "\n", "utf-8")
        paths.append(path)
    return paths
