"""Which rows and weights of a PyTorch model have changed since they were published.

Every weight is held against a copy of what was published, bit by bit. That is exact whatever the
optimiser does: with momentum or weight decay, rows change that no batch has touched.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from numpy.typing import NDArray
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from anabranch_publish.drafts import DeltaDraft
from anabranch_publish.publisher import Publisher
from anabranch_wire.errors import InvalidInput

__all__ = ["ChangedWeights", "Initializer"]

_BLOCK_ROWS = 1 << 16
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Initializer:
    """What a weight of the module is in the ONNX file.

    Attributes:
        name: of the initializer.
        transposed: whether its axes are swapped there, as exporters do with those of `nn.Linear`.
    """

    name: str
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class _Changed:
    """Changes of one weight: rows of it, or, where `rows` is None, all."""

    rows: Tensor | None
    values: Tensor


class ChangedWeights:
    """Weights of a module and a copy of them as published. For one thread.

    Weights of `nn.Embedding` and `nn.EmbeddingBag` are published row by row, whose keys are row
    numbers; other parameters and buffers whole. The copy takes as much memory as the weights, on
    the CPU; a comparison reads both.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Mapping[str, str | Initializer | None] | None = None,
        *,
        keys: Mapping[str, NDArray[np.integer]] | None = None,
        published: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Take the copy.

        Args:
            module: as it was published, unless `published` says otherwise.
            names: name in the module's `state_dict` -> what the ONNX file calls it; None leaves a
                weight out. Weights that are not there have the same name in both.
            keys: name of an embedding's weight -> (rows,) the key of each of its rows, where the
                table is not indexed by row number.
            published: `state_dict` of what was published.

        Raises:
            InvalidInput: a name is that of no weight, or keys are not one for each row.
        """
        self._module = module
        self._names = dict(names or {})
        self._keys = dict(keys or {})
        self._tables = {
            f"{path}.weight" if path else "weight"
            for path, part in module.named_modules()
            if isinstance(part, nn.Embedding | nn.EmbeddingBag)
        }
        weights = self._weights()
        for name in (*self._names, *self._keys):
            if name not in module.state_dict():
                raise InvalidInput(f"{name!r}: the module has no such weight")
        for name, held in self._keys.items():
            if name not in self._tables or len(held) != len(weights[name]):
                raise InvalidInput(f"{name!r}: expected a key for each row of an embedding")
        before = weights if published is None else published
        self._copies = {name: before[name].detach().cpu().clone() for name in weights}
        self._pending: dict[str, _Changed] = {}

    def add_to(self, draft: DeltaDraft) -> int:
        """Tell a delta what has changed; returns how many rows and weights that are.

        The copy stays as it was until `commit`.

        Raises:
            InvalidInput: one has a NaN or an infinity, or another shape than was published.
        """
        found = self._changed()
        for name, changed in found.items():
            target = self._target(name)
            assert target is not None
            if changed.rows is None:
                values = changed.values.T if target.transposed else changed.values
                draft.dense({target.name: values})
            else:
                rows = changed.rows.numpy()
                keys = self._keys[name][rows] if name in self._keys else rows
                draft.upsert(target.name, keys, changed.values)
        self._pending = found
        return sum(1 if c.rows is None else len(c.rows) for c in found.values())

    def commit(self) -> None:
        """Take what the last `add_to` told as published; to be called once that is so."""
        for name, changed in self._pending.items():
            if changed.rows is None:
                self._copies[name] = changed.values
            else:
                self._copies[name][changed.rows] = changed.values
        self._pending = {}

    def publish(
        self,
        publisher: Publisher,
        *,
        step: int | None = None,
        event_time: float | None = None,
        also: Callable[[DeltaDraft], None] | None = None,
    ) -> int | None:
        """Publish what has changed, and remember that it is; returns the delta's number.

        Args:
            publisher: of the version.
            step: training step.
            event_time: time of the newest training event, in seconds since 1970.
            also: adds more to the delta, before it is published.

        Returns:
            None where nothing has changed and `also` is None: there is no delta then.

        Raises:
            AnabranchError, OSError: as `DeltaDraft.publish`; the next call publishes it again.
        """
        draft = publisher.delta(step=step, event_time=event_time)
        if not self.add_to(draft) and also is None:
            return None
        if also is not None:
            also(draft)
        sequence = draft.publish()
        self.commit()
        return sequence

    def _weights(self) -> dict[str, Tensor]:
        """Weights that are published; counters of batches are in no ONNX file."""
        return {
            name: weight
            for name, weight in self._module.state_dict().items()
            if self._target(name) is not None and not name.endswith("num_batches_tracked")
        }

    def _target(self, name: str) -> Initializer | None:
        target = self._names.get(name, name)
        return Initializer(target) if isinstance(target, str) else target

    def _changed(self) -> dict[str, _Changed]:
        found: dict[str, _Changed] = {}
        for name, weight in self._weights().items():
            now, before = weight.detach().cpu(), self._copies[name]
            if now.shape != before.shape or now.dtype != before.dtype:
                raise InvalidInput(
                    f"{name!r}: is {now.dtype} {list(now.shape)}, published as {before.dtype} "
                    f"{list(before.shape)}: publish a new version"
                )
            bits = _BITS[now.element_size()]
            one, other = now.contiguous().view(bits), before.contiguous().view(bits)
            if name in self._tables:
                rows = _changed_rows(one, other)
                if len(rows):
                    found[name] = _Changed(rows, now[rows].clone())
            elif not torch.equal(one, other):
                found[name] = _Changed(None, now.clone())
        return found


def _changed_rows(now: Tensor, before: Tensor) -> Tensor:
    """Return the numbers of rows that differ, in blocks: what is in between takes no memory."""
    found = [
        start
        + (now[start : start + _BLOCK_ROWS] != before[start : start + _BLOCK_ROWS])
        .any(dim=1)
        .nonzero()
        .flatten()
        for start in range(0, len(now), _BLOCK_ROWS)
    ]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)
