"""The recorded requests of the demo: real users, all items as candidates, and the expected scores.

`demo_data/requests.json` is written by `examples/open_bandit` and read here; both go through these
structs, so the file has one definition. Nothing of it needs the trainer's code: requests are made
of raw values (`ranking`), and the keys are those that the trainer made (`inputs`).
"""

from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MODEL",
    "RawRanking",
    "RecordedItem",
    "RecordedUser",
    "Recording",
    "Shown",
    "demo_data",
    "load",
]

MODEL: Final = "open_bandit"
"""Name of the demo's model."""

_FORMAT: Final = 1


class RawRanking(NamedTuple):
    """A ranking request as callers of `:rank` send it.

    Attributes:
        user: feature -> raw value.
        candidates: feature -> raw values, one for each candidate.
    """

    user: dict[str, object]
    candidates: dict[str, list[object]]


class Shown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the shop really did with this user at that moment."""

    item_id: int
    position: int
    clicked: bool


class RecordedItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One item of the catalogue.

    Attributes:
        item_id: 0 to 79, as in the data.
        groups: the three categorical features; the data has them as hex text.
        value: the numeric feature.
        item_features: keys of `groups`.
    """

    item_id: int
    groups: tuple[str, str, str]
    value: float
    item_features: tuple[int, int, int]


class RecordedUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One user of the later days, which the model was not trained on.

    Attributes:
        time: when the user was there, seconds since 1970.
        groups: the four categorical features; the data has them as hex text.
        affinity: (item id, past clicks) of the items that the user clicked before.
        user_features: keys of `groups`.
        top_items: item keys (item id + 1), padded with 0.
        shown: what the shop showed then.
        expected: score of every item, in order of item id.
        order: item ids, best first; the lower id first among equal scores.
    """

    time: float
    groups: tuple[str, str, str, str]
    affinity: tuple[tuple[int, float], ...]
    user_features: tuple[int, int, int, int]
    top_items: tuple[int, ...]
    shown: Shown
    expected: tuple[float, ...]
    order: tuple[int, ...]


class Recording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything in `requests.json`.

    Attributes:
        position: the place on the page for which the items are ranked.
        items: the candidates of every request, in order of item id.
        users: in order of time.
        format: version of this layout.
    """

    position: int
    items: tuple[RecordedItem, ...]
    users: tuple[RecordedUser, ...]
    format: int = _FORMAT

    def __post_init__(self) -> None:
        """Check that the layout is one that this code knows.

        Raises:
            ValueError: `format` is a later one.
        """
        if self.format != _FORMAT:
            raise ValueError(f"format {self.format}: expected {_FORMAT}")

    def ranking(self, user: RecordedUser) -> RawRanking:
        """Ask for every item for `user`.

        Item features are left to the server's item table; users without past clicks send neither
        `clicked_items` nor `affinity`, and defaults stand for them.
        """
        features: dict[str, object] = {
            f"user_feature_{k}": group for k, group in enumerate(user.groups)
        }
        features["position"] = self.position
        candidates: dict[str, list[object]] = {"item_id": [item.item_id for item in self.items]}
        if user.affinity:
            clicks = dict(user.affinity)
            features["clicked_items"] = [key - 1 for key in user.top_items if key]
            candidates["affinity"] = [clicks.get(item.item_id, 0.0) for item in self.items]
        return RawRanking(features, candidates)

    def inputs(self, user: RecordedUser) -> dict[str, NDArray[np.int64] | NDArray[np.float32]]:
        """Model inputs that score every item for `user`, one row an item.

        Returns:
            `user_features` (80, 4), `item_id` (80,), `item_features` (80, 3), `position` (80,) and
            `top_items` (80, 5) int64; `item_value` and `affinity` (80, 1) float32.
        """
        rows = len(self.items)
        affinity = np.zeros((rows, 1), np.float32)
        for item_id, clicks in user.affinity:
            affinity[item_id, 0] = clicks
        return {
            "user_features": np.tile(np.array(user.user_features, np.int64), (rows, 1)),
            "item_id": np.array([item.item_id + 1 for item in self.items], np.int64),
            "item_features": np.array([item.item_features for item in self.items], np.int64),
            "item_value": np.array([[item.value] for item in self.items], np.float32),
            "position": np.full(rows, self.position, np.int64),
            "affinity": affinity,
            "top_items": np.tile(np.array(user.top_items, np.int64), (rows, 1)),
        }


def demo_data() -> Traversable:
    """The folder of the demo inside this package: `models/` and `requests.json`."""
    return resources.files("anabranch_server") / "demo_data"


def load() -> Recording:
    """Read the recorded requests that ship with this package."""
    text = (demo_data() / "requests.json").read_bytes()
    return msgspec.json.decode(text, type=Recording)
