"""Compiled checks of the features of one model: the parts by which each is sent, and their rows.

Most requests have nothing to be repeated, converted or refused. `FeatureRules.usual` takes those as
they are, and looks at the lengths of all features at once; whatever else comes is left to
`FeatureRules.sent`, feature by feature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.features import FeatureInput
from anabranch_runtime.sent_features import LENGTHS, OFFSETS, WEIGHTS, SentFeature, sent_feature
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["FeatureRules", "part_names", "repeated"]

Array = NDArray[np.generic]

_BAGS: Final[tuple[tuple[str, Literal["lengths", "offsets"]], ...]] = (
    (LENGTHS, "lengths"),
    (OFFSETS, "offsets"),
)


@dataclass(frozen=True, slots=True)
class _Part:
    """One input by which a feature is sent.

    Attributes:
        name: of the input.
        feature: of which it is a part.
        kind: what it carries.
        is_flat: whether it may have one axis.
        width: columns where it has two axes; -1 = any, None = it may not have two.
        specs: how it is declared, by each datatype that it may have.
    """

    name: str
    feature: FeatureInput
    kind: Literal["ids", "lengths", "offsets", "weights"]
    is_flat: bool
    width: int | None
    specs: Mapping[str, TensorSpec]

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether it may have this shape."""
        if len(shape) == 1:
            return self.is_flat and shape[0] >= 0
        width = self.width
        if width is None or len(shape) != 2 or shape[0] < 0:
            return False
        return shape[1] == width or width < 0 <= shape[1]

    def rows_in(self, shape: Sequence[int]) -> int:
        """Rows of the part, or one less; 1 where it does not count rows."""
        kind = self.kind
        if kind == "offsets":
            return max(shape[0] - 1, 0)
        if kind == "lengths" or len(shape) == 2 or not self.feature.ragged:
            return shape[0]
        return 1

    @property
    def shapes_text(self) -> str:
        """The shapes that it may have, as messages show them."""
        shapes = ["[-1]"] if self.is_flat else []
        if self.width is not None:
            shapes.append(f"[-1, {self.width}]")
        return f"{' or '.join(shapes)} (-1 = any)"


class FeatureRules:
    """Checks for the features of one model. Immutable and safe from any thread.

    Attributes:
        features: in the order of their arrays in a request.
    """

    def __init__(self, features: tuple[FeatureInput, ...]) -> None:
        """Compile the checks.

        Raises:
            ValueError: two inputs have one name.
        """
        self.features = features
        self._usual = tuple(
            [
                (
                    feature.name,
                    feature.name + LENGTHS if feature.ragged else None,
                    feature.name + WEIGHTS if feature.weighted else None,
                    feature.once,
                )
                for feature in features
            ]
        )
        self._limits = [feature.max_length for feature in features if feature.ragged]
        parts = [part for feature in features for part in _parts_of(feature)]
        self._parts: Mapping[str, _Part] = {part.name: part for part in parts}
        if len(self._parts) != len(parts):
            raise ValueError("two inputs of the features have one name")

    def find(self, name: str, datatype: str, shape: Sequence[int]) -> TensorSpec | None:
        """Return how a part of a feature is declared that has this datatype; None: there is none.

        Raises:
            InvalidInput: it has another datatype, or a shape that it cannot have.
        """
        part = self._parts.get(name)
        if part is None:
            return None
        spec = part.specs.get(datatype)
        if spec is None:
            raise InvalidInput(
                f"input {name!r}: expected datatype {' or '.join(part.specs)}, "
                f"got {datatype[:40]!r}"
            )
        if not part.accepts(shape):
            raise InvalidInput(
                f"input {name!r}: expected shape {part.shapes_text}, got {list(shape)[:20]}"
            )
        return spec

    def rows_in(self, name: str, shape: Sequence[int]) -> int:
        """Return the rows of a part that `find` accepted, or one less where it may have an end.

        1 where it does not count rows.
        """
        return self._parts[name].rows_in(shape)

    def is_bag(self, name: str) -> bool:
        """Whether an input says how the ids of a feature are cut into rows."""
        part = self._parts.get(name)
        return part is not None and part.kind in ("lengths", "offsets")

    def usual(self, arrays: Mapping[str, Array], rows: int) -> tuple[list[Array], int, int] | None:
        """Return every feature in normal form, where all come by lengths or are fixed.

        Args:
            arrays: input name -> array, each already accepted by `find`.
            rows: of the dense inputs; -1 where they have none.

        Returns:
            The arrays, the rows of the request, and how many of `arrays` were features. None where
            something must be repeated or is at fault, or came in another form.
        """
        found: list[Array] = []
        bags: list[Array] = []
        sizes: list[int] = []
        sent = 0
        users = -1
        for name, of_lengths, of_weights, once in self._usual:
            ids = arrays.get(name)
            if ids is None:
                return None
            sent += 1
            if of_lengths is None:
                count = len(ids)
                found.append(ids if ids.ndim == 1 else ids.reshape(-1))
            else:
                lengths = arrays.get(of_lengths)
                if lengths is None or ids.ndim != 1:
                    return None
                sent += 1
                count = len(lengths)
                if lengths.itemsize != 8:
                    lengths = lengths.astype(np.int64)
                found += (ids, lengths)
                bags.append(lengths)
                sizes.append(len(ids))
            if of_weights is not None:
                weights = arrays.get(of_weights)
                if weights is None:
                    weights = np.ones(ids.size, np.float32)
                elif weights.shape == ids.shape:
                    sent += 1
                else:
                    return None
                found.append(weights if weights.ndim == 1 else weights.reshape(-1))
            if once:
                if users not in (-1, count):
                    return None
                users = count
            elif rows < 0:
                rows = count
            elif count != rows:
                return None
        if rows < 0:
            rows = users
        if rows < 1 or users not in (-1, 1, rows) or not self._fit(bags, sizes):
            return None
        return found, rows, sent

    def _fit(self, bags: list[Array], sizes: list[int]) -> bool:
        """Whether the lengths of each bag are within its limit and add up to its size."""
        if not bags:
            return True
        begins = list(accumulate([len(bag) for bag in bags[:-1]], initial=0))
        flat = np.concatenate(bags)
        # As unsigned numbers, negative ones are the greatest of all.
        most = np.maximum.reduceat(flat.view(np.uint64), begins).tolist()
        for found, limit in zip(most, self._limits, strict=True):
            if found > limit:
                return False
        return bool(np.add.reduceat(flat, begins).tolist() == sizes)

    def sent(self, arrays: Mapping[str, Array]) -> list[SentFeature]:
        """Return every feature as it was sent.

        Args:
            arrays: input name -> array, each already accepted by `find`.

        Raises:
            KeyError: the ids of one are missing.
            InvalidInput: the parts of one do not go together.
        """
        return [sent_feature(feature, arrays) for feature in self.features]


def part_names(feature: FeatureInput) -> list[str]:
    """Return the names of all inputs by which a feature may be sent."""
    return [part.name for part in _parts_of(feature)]


def repeated(arrays: Sequence[Array], rows: int) -> tuple[Array, ...]:
    """Return a feature of one row in normal form with that row `rows` times."""
    return tuple([np.tile(array, rows) for array in arrays])


def _parts_of(feature: FeatureInput) -> list[_Part]:
    name = feature.name
    is_flat = feature.ragged or feature.max_length == 1
    width = -1 if feature.ragged else feature.max_length
    parts = [_Part(name, feature, "ids", is_flat, width, {"INT64": feature.spec})]
    if feature.ragged:
        parts += [
            _Part(name + part, feature, kind, True, None, _specs(name + part, "INT64", "INT32"))
            for part, kind in _BAGS
        ]
    if feature.weighted:
        specs = _specs(name + WEIGHTS, "FP32")
        parts.append(_Part(name + WEIGHTS, feature, "weights", is_flat, width, specs))
    return parts


def _specs(name: str, *datatypes: Datatype) -> Mapping[str, TensorSpec]:
    return {datatype: TensorSpec(name, datatype, (-1,)) for datatype in datatypes}
