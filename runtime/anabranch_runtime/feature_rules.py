"""Compiled checks of the features of one model: the parts by which each is sent, and their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.features import FeatureInput
from anabranch_runtime.sent_features import LENGTHS, OFFSETS, WEIGHTS, SentFeature, sent_feature
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["FeatureRules", "part_names", "repeated"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class _Part:
    """One input by which a feature is sent.

    Attributes:
        name: of the input.
        feature: of which it is a part.
        kind: what it carries.
        specs: how it is declared, by each datatype that it may have.
    """

    name: str
    feature: FeatureInput
    kind: Literal["ids", "bags", "weights"]
    specs: Mapping[str, TensorSpec]

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether it may have this shape."""
        if min(shape, default=0) < 0:
            return False
        if self.kind == "bags":
            return len(shape) == 1
        if self.feature.ragged:
            return len(shape) in (1, 2)
        width = self.feature.max_length
        return (len(shape) == 2 and shape[1] == width) or (len(shape) == 1 and width == 1)

    def rows_in(self, shape: Sequence[int]) -> int:
        """Rows of the part; 1 where it does not count rows."""
        if self.kind == "bags" or not self.feature.ragged or len(shape) == 2:
            return shape[0]
        return 1

    @property
    def shapes_text(self) -> str:
        """The shapes that it may have, as messages show them."""
        if self.kind == "bags":
            shapes = "[-1]"
        elif self.feature.ragged:
            shapes = "[-1] or [-1, -1]"
        elif self.feature.max_length == 1:
            shapes = "[-1] or [-1, 1]"
        else:
            shapes = f"[-1, {self.feature.max_length}]"
        return f"{shapes} (-1 = any)"


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
        """Return the rows of a part that `find` accepted; 1 where it does not count rows."""
        return self._parts[name].rows_in(shape)

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
    parts = [_Part(name, feature, "ids", {"INT64": feature.spec})]
    if feature.ragged:
        parts += [
            _Part(name + suffix, feature, "bags", _specs(name + suffix, "INT64", "INT32"))
            for suffix in (LENGTHS, OFFSETS)
        ]
    if feature.weighted:
        parts.append(_Part(name + WEIGHTS, feature, "weights", _specs(name + WEIGHTS, "FP32")))
    return parts


def _specs(name: str, *datatypes: Datatype) -> Mapping[str, TensorSpec]:
    return {datatype: TensorSpec(name, datatype, (-1,)) for datatype in datatypes}
