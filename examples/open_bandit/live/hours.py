"""The log by hours: what is learned, and published, at a time."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from open_bandit.features import Inputs, impression_inputs
from open_bandit.impressions import Impressions, Items

__all__ = ["Hour", "hours"]

_HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True, eq=False)
class Hour:
    """N impressions of one hour (UTC), N at least 1.

    Attributes:
        begin: its first moment.
        newest: of its newest impression, in seconds since 1970.
        inputs: name -> (N, ...) of every model input.
        clicks: (N,), 1 or 0.
    """

    begin: datetime.datetime
    newest: float
    inputs: Inputs
    clicks: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.clicks)

    @property
    def day(self) -> datetime.date:
        """To which it belongs, in UTC."""
        return self.begin.date()


def hours(log: Impressions, items: Items) -> Iterator[Hour]:
    """Yield the hours of a log in order; those in which nothing was shown are left out."""
    numbers = (log.times // _HOUR_S).astype(np.int64)
    for number in np.unique(numbers).tolist():
        part = log.rows(np.flatnonzero(numbers == number))
        begin = datetime.datetime.fromtimestamp(number * _HOUR_S, datetime.UTC)
        yield Hour(begin, float(part.times[-1]), impression_inputs(part, items), part.clicks)
