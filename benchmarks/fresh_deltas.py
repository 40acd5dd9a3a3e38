"""Deltas of the benchmarks: made beside the repository, so that publishing one is a rename.

A trainer works on another machine: what it does must not be measured with the server.
"""

import os
import shutil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_publish import Publisher
from fresh_model import DIM, PROBE_KEY, TABLE, FreshModel, dense_weights, item_keys

__all__ = ["StagedDeltas", "probe_row"]

_SEED: Final = 17


def probe_row(number: int) -> NDArray[np.float32]:
    """Return the row (1, dim) by which delta `number` can be told in an answer."""
    return np.full((1, DIM), number, np.float32)


class StagedDeltas:
    """Deltas of one version, numbered from 1.

    Args:
        model: has the version.
        version: its number.
        rows: that each delta changes, beside that of the probe.
    """

    def __init__(self, model: FreshModel, version: int, rows: int) -> None:
        self._model = model
        self._version = version
        self._rows = rows
        self._random = np.random.default_rng(_SEED)
        self._folder = model.folder / str(version)
        self._staging = model.repository.parent / "staged" / model.folder.name
        beside = self._staging / str(version)
        beside.mkdir(parents=True, exist_ok=True)
        for file in self._folder.iterdir():  # what a publisher wants to know of its base
            if file.is_file() and not (beside / file.name).exists():
                (beside / file.name).write_bytes(file.read_bytes())
        self._staged = 0
        self.newest = 0

    def stage(self, count: int, dense_every: int = 0) -> None:
        """Make the next `count` deltas.

        Args:
            count: how many.
            dense_every: each so many-th brings all dense weights as well; 0: none does.
        """
        with Publisher(self._staging, version=self._version) as publisher:
            for _ in range(count):
                self._staged += 1
                delta = publisher.delta(step=self._staged)
                numbers = self._random.choice(self._model.rows, self._rows, replace=False)
                values = self._random.standard_normal((self._rows, DIM), np.float32)
                keys = np.append(item_keys(numbers), PROBE_KEY)
                delta.upsert(TABLE, keys, np.concatenate((values, probe_row(self._staged))))
                if dense_every and self._staged % dense_every == 0:
                    delta.dense(dense_weights(self._staged))
                delta.publish()

    def publish(self) -> int:
        """Publish the next one and return its number."""
        self.newest += 1
        name = f"{self.newest:08}"
        target = self._folder / "deltas"
        target.mkdir(exist_ok=True)
        staged = self._staging / str(self._version)
        # A copy goes: by what is staged the publisher knows which number is next.
        shutil.copytree(staged / "deltas" / name, staged / "going", copy_function=os.link)
        (staged / "going").rename(target / name)
        return self.newest
