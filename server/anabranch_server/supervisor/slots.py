"""Which shared word belongs to which model."""

from collections.abc import Container, Mapping
from typing import Protocol

from anabranch_wire.errors import Unavailable

__all__ = ["Slots"]


class _Change(Protocol):
    """What a model serves; `state` is None when the model is gone."""

    @property
    def epoch(self) -> int: ...
    @property
    def state(self) -> object | None: ...


class Slots:
    """Gives out words. A model keeps its word when it goes, in case it comes back.

    Args:
        count: number of words.
        taken: model -> slot, as workers reported them.
    """

    def __init__(self, count: int, taken: Mapping[str, int]) -> None:
        self._slots = dict(taken)
        used = set(taken.values())
        self._free = [slot for slot in reversed(range(count)) if slot not in used]

    def take(self, model: str, current: Mapping[str, _Change], at_work: Container[str] = ()) -> int:
        """Return the slot of a model.

        Args:
            model: model name.
            current: what each model serves; where no slot is free, the model that has been gone
                longest gives up its own. Epochs are of one count over all models, so that a
                worker which still looks at that word finds an epoch that it does not know.
            at_work: models that are being switched, and may be about to come back.

        Raises:
            Unavailable: every slot belongs to a model that is there.
        """
        slot = self._slots.get(model)
        if slot is None:
            slot = self._slots[model] = (
                self._free.pop() if self._free else self._reuse(current, at_work)
            )
        return slot

    def give_back(self, model: str) -> None:
        """Free the slot of a model that never served from it."""
        self._free.append(self._slots.pop(model))

    def _reuse(self, current: Mapping[str, _Change], at_work: Container[str]) -> int:
        gone = [
            (current[model].epoch, model)
            for model in self._slots
            if model in current and current[model].state is None and model not in at_work
        ]
        if not gone:
            raise Unavailable(f"{len(self._slots)} models are served: there is room for no other")
        return self._slots.pop(min(gone)[1])
