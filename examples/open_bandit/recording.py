"""Choose real users of the later days and record what the demo will ask about them."""

from collections.abc import Callable
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from anabranch_server.demo_requests import RecordedItem, RecordedUser, Recording, Shown
from open_bandit.features import Inputs, candidate_inputs, hash_key, top_items
from open_bandit.impressions import ITEMS, Impressions, Items
from open_bandit.rankings import shortest

__all__ = ["choose_users", "record"]

_POSITION: Final = 1
"""Items are ranked for the first place on the page."""

_WITH_HISTORY: Final = 12
_WITHOUT_HISTORY: Final = 8


def choose_users(later: Impressions) -> NDArray[np.int64]:
    """Return the rows of the first 20 different users, in order of time.

    A user is a combination of user features and past clicks, since the data has no user ids. Users
    with past clicks are rare in the log (one impression in 22) but their rankings differ most, so
    the first 12 with and the first 8 without are taken.
    """
    seen: set[bytes] = set()
    room = {True: _WITH_HISTORY, False: _WITHOUT_HISTORY}
    chosen: list[int] = []
    for row in range(len(later)):
        identity = later.groups[row].tobytes() + later.affinities[row].tobytes()
        history = bool(later.affinities[row].any())
        if identity not in seen and room[history]:
            seen.add(identity)
            room[history] -= 1
            chosen.append(row)
    return np.array(chosen, np.int64)


def record(
    users: Impressions, items: Items, score: Callable[[Inputs], NDArray[np.float32]]
) -> Recording:
    """Return one request for each impression of `users`, with the scores that `score` gives.

    Args:
        users: one impression a user.
        items: the catalogue, whose 80 items are the candidates.
        score: model inputs of N rows -> (N,) probabilities.
    """
    inputs = [candidate_inputs(users, row, items, _POSITION) for row in range(len(users))]
    return Recording(
        position=_POSITION,
        items=tuple(_item(items, item_id) for item_id in range(ITEMS)),
        users=tuple(_user(users, row, score(rows)) for row, rows in enumerate(inputs)),
    )


def _item(items: Items, item_id: int) -> RecordedItem:
    groups = tuple(str(group) for group in items.groups[item_id])
    keys = tuple(hash_key(group) for group in groups)
    return RecordedItem(
        item_id=item_id,
        groups=cast(tuple[str, str, str], groups),
        value=shortest(items.values[item_id]),
        item_features=cast(tuple[int, int, int], keys),
    )


def _user(users: Impressions, row: int, scores: NDArray[np.float32]) -> RecordedUser:
    affinities = users.affinities[row]
    groups = tuple(str(group) for group in users.groups[row])
    keys = tuple(hash_key(group) for group in groups)
    return RecordedUser(
        time=float(users.times[row]),
        groups=cast(tuple[str, str, str, str], groups),
        affinity=tuple((int(k), shortest(affinities[k])) for k in np.flatnonzero(affinities)),
        user_features=cast(tuple[int, int, int, int], keys),
        top_items=tuple(top_items(affinities[None])[0].tolist()),
        shown=Shown(
            item_id=int(users.item_ids[row]),
            position=int(users.positions[row]),
            clicked=bool(users.clicks[row]),
        ),
        expected=tuple(shortest(score) for score in scores),
        order=tuple(np.argsort(-scores, kind="stable").tolist()),
    )
