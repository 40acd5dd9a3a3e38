"""What the trainer publishes: changed rows and weights after each hour, all of them after a day."""

import tempfile
from pathlib import Path

import numpy as np

from anabranch_publish import Publisher, publish_version
from anabranch_server.demo_requests import Recording
from open_bandit.catalogue import write_catalogue
from open_bandit.golden import OUTPUT, golden_rankings, write_golden
from open_bandit.impressions import Impressions, Items
from open_bandit.live.training import Changed, Trainer
from open_bandit.live.visitors import Point
from open_bandit.live.weights import write_weights

__all__ = ["Releases"]


class Releases:
    """The model's folder, and the version in it that deltas go to. For one thread."""

    def __init__(
        self, folder: Path, recording: Recording, users: Impressions, items: Items
    ) -> None:
        """Deltas go to version 1, which is there.

        Args:
            folder: of the model.
            recording: requests that warm a version up.
            users: the impressions of those, of which golden requests are made.
            items: the catalogue.
        """
        self._folder = folder
        self._recording = recording
        self._users = users
        self._items = items
        self._version = 1
        self._onnx = (folder / "1" / "model.onnx").read_bytes()

    @property
    def version(self) -> int:
        """To which deltas go."""
        return self._version

    def publish_changes(self, trainer: Trainer, changed: Changed, event_time: float) -> Point:
        """Publish what one step changed; durable when this returns.

        Args:
            trainer: has the numbers.
            changed: the rows and weights that are other than before.
            event_time: of the newest impression learned, in seconds since 1970.
        """
        with Publisher(self._folder, version=self._version) as publisher:
            draft = publisher.delta(step=trainer.steps, event_time=event_time)
            for table, keys in changed.rows.items():
                draft.upsert(table, keys, trainer.weights[table][keys])
            draft.dense({name: trainer.weights[name] for name in changed.dense})
            return Point(self._version, draft.publish())

    def publish_all(self, trainer: Trainer, event_time: float) -> Point:
        """Publish a version with all weights, the catalogue, warm-up and golden requests.

        The golden requests carry the keys and scores of this trainer: a server that does not come
        to them refuses the version.
        """
        inputs = self._recording.inputs(self._recording.users[0])
        with tempfile.TemporaryDirectory() as scratch:
            graph = Path(scratch) / "model.onnx"
            write_weights(self._onnx, trainer.weights, graph)
            warmup = Path(scratch) / "ranking.npz"
            expected = {f"expected.{OUTPUT}": trainer.score(inputs)[:, None]}
            np.savez(warmup, allow_pickle=False, **inputs, **expected)
            catalogue = Path(scratch) / "0000.parquet"
            write_catalogue(catalogue, self._items)
            rankings = golden_rankings(self._users)
            published = publish_version(
                self._folder,
                graph,
                version=self._version + 1,
                model_yaml=self._folder / "1" / "model.yaml",
                warmup=[warmup],
                golden=write_golden(Path(scratch), rankings, self._items, trainer.score),
                items=[catalogue],
                step=trainer.steps,
                event_time=event_time,
            )
        self._version = published.version
        return Point(self._version, 0)
