"""The Open Bandit sample as arrays: what was shown to whom, when, and whether it was clicked.

Nothing is derived here: every array holds what the files say, in the order of the files (by time).
"""

import csv
import datetime
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["ITEMS", "Impressions", "Items", "read_impressions", "read_items"]

ITEMS: Final = 80
"""Items of the shop's campaign; ids are 0 to 79."""

_USER_GROUPS: Final = 4
_ITEM_GROUPS: Final = 3


@dataclass(frozen=True, slots=True)
class Items:
    """The catalogue, one row an item in order of item id.

    Attributes:
        values: (80,) float32; the one numeric feature, already standardised by the publisher.
        groups: (80, 3) str; the three categorical features, hex text that hides the true value.
    """

    values: NDArray[np.float32]
    groups: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Impressions:
    """N impressions in order of time.

    Attributes:
        times: (N,) float64; seconds since 1970.
        item_ids: (N,) int64; 0 to 79.
        positions: (N,) int64; 1 to 3, the place on the page.
        clicks: (N,) float32; 1 where the item was clicked, else 0.
        groups: (N, 4) str; the four categorical user features, hex text.
        affinities: (N, 80) float32; counts of the user's past clicks on each item (0 to 3 here).
    """

    times: NDArray[np.float64]
    item_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    clicks: NDArray[np.float32]
    groups: NDArray[np.str_]
    affinities: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.times)

    def rows(self, index: NDArray[np.int64]) -> Self:
        """The impressions at `index` (K,), in that order."""
        return type(self)(
            times=self.times[index],
            item_ids=self.item_ids[index],
            positions=self.positions[index],
            clicks=self.clicks[index],
            groups=self.groups[index],
            affinities=self.affinities[index],
        )

    def split(self, day: datetime.date) -> tuple[Self, Self]:
        """Impressions before `day` (UTC), and those of `day` and later."""
        begin = datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()
        later = self.times >= begin
        return self.rows(np.flatnonzero(~later)), self.rows(np.flatnonzero(later))


def read_items(path: Path) -> Items:
    """Read `bts-item_context.csv`."""
    with path.open(newline="") as file:
        lines = sorted(csv.DictReader(file), key=lambda line: int(line["item_id"]))
    if [int(line["item_id"]) for line in lines] != list(range(ITEMS)):
        raise ValueError(f"{path.name}: expected the items 0 to {ITEMS - 1}, once each")
    values = [float(line["item_feature_0"]) for line in lines]
    groups = [[line[f"item_feature_{k + 1}"] for k in range(_ITEM_GROUPS)] for line in lines]
    return Items(values=np.array(values, np.float32), groups=np.array(groups))


def read_impressions(path: Path) -> Impressions:
    """Read `bts-all.csv.gz`; propensities are not read, since no off-policy estimate is made."""
    with gzip.open(path, "rt", newline="") as file:
        lines = list(csv.DictReader(file))
    times = [datetime.datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines]
    groups = [[line[f"user_feature_{k}"] for k in range(_USER_GROUPS)] for line in lines]
    affinities = [[float(line[f"user-item_affinity_{k}"]) for k in range(ITEMS)] for line in lines]
    everything = Impressions(
        times=np.array(times, np.float64),
        item_ids=np.array([int(line["item_id"]) for line in lines], np.int64),
        positions=np.array([int(line["position"]) for line in lines], np.int64),
        clicks=np.array([float(line["click"]) for line in lines], np.float32),
        groups=np.array(groups),
        affinities=np.array(affinities, np.float32),
    )
    return everything.rows(np.argsort(everything.times, kind="stable"))
