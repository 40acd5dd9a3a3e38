"""A catalog whose epochs are its own, for whoever serves in one process."""

from collections import defaultdict

from anabranch_runtime.catalog import Catalog, ServingState

__all__ = ["OwnCatalog", "OwnEpochs", "publish"]


class OwnEpochs:
    """Epoch words in the memory of this process."""

    def __init__(self) -> None:
        self._words: defaultdict[int, int] = defaultdict(int)

    def load(self, index: int, /) -> int:
        """Return the epoch of a slot; 0 before the first."""
        return self._words[index]

    def store(self, index: int, epoch: int) -> None:
        """Make `epoch` current."""
        self._words[index] = epoch


class OwnCatalog(Catalog):
    """A catalog that one owner publishes to."""

    def __init__(self) -> None:
        self._epochs = OwnEpochs()
        self._slots: dict[str, int] = {}
        super().__init__(self._epochs)

    def publish(self, model: str, state: ServingState | None) -> None:
        """Make `state` the one that new requests see; None forgets the model."""
        slot = self._slots.setdefault(model, len(self._slots))
        epoch = self._epochs.load(slot) + 1
        self.hold(model, slot, epoch, state)
        self._epochs.store(slot, epoch)
        self.sweep(model)


def publish(catalog: Catalog, model: str, state: ServingState | None) -> None:
    """Publish to the catalog of a `door_context`."""
    assert isinstance(catalog, OwnCatalog)
    catalog.publish(model, state)
