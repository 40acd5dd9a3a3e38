"""The inputs that a request may have: those of the graph, and features by all their parts."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.feature_rules import FeatureRules
from anabranch_runtime.features import FeatureInput
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec, datatype_of

__all__ = ["WantedInputs", "check_shape"]

Array = NDArray[np.generic]


class WantedInputs:
    """What a request of a file has to hold. Immutable.

    Attributes:
        specs: inputs that are no part of a feature, by name.
    """

    def __init__(self, inputs: Sequence[TensorSpec], features: Sequence[FeatureInput]) -> None:
        self.specs: Mapping[str, TensorSpec] = {spec.name: spec for spec in inputs}
        self._rules = FeatureRules(tuple(features))
        self._required = (*self.specs, *(feature.name for feature in features))

    @property
    def names(self) -> list[str]:
        """Names that every request has."""
        return sorted(self._required)

    def part(
        self, name: str, datatype: str, shape: tuple[int, ...], what: str
    ) -> TensorSpec | None:
        """Return how a part of a feature is declared; None where `name` is none.

        Args:
            name: as it was sent.
            datatype: of the protocol.
            shape: as it was sent.
            what: how messages name the file.

        Raises:
            InvalidInput: it has another datatype or shape.
        """
        try:
            return self._rules.find(name, datatype, shape)
        except InvalidInput as error:
            raise InvalidInput(f"{what}: {error.message}") from None

    def has_part(self, name: str, array: Array, what: str) -> bool:
        """Whether an array is a part of a feature.

        Raises:
            InvalidInput: it has the name of one, but another datatype or shape.
        """
        try:
            datatype: str = datatype_of(array.dtype)
        except ValueError:
            datatype = array.dtype.name
        return self.part(name, datatype, array.shape, what) is not None

    def complete(self, given: Mapping[str, Array], what: str) -> Mapping[str, Array]:
        """Return `given`, which has all that a request needs.

        Raises:
            InvalidInput: an input is missing.
        """
        missing = [name for name in self._required if name not in given]
        if missing:
            raise InvalidInput(f"{what}: input {missing[0]!r} is missing")
        return given


def check_shape(shape: tuple[int, ...], spec: TensorSpec, place: str) -> None:
    """Check that an array can be the input that `spec` declares.

    Raises:
        InvalidInput: its shape is another.
    """
    fits = len(shape) == len(spec.shape) and all(
        size >= 0 and declared in (-1, size)
        for size, declared in zip(shape, spec.shape, strict=True)
    )
    if not fits:
        raise InvalidInput(f"{place}: found shape {list(shape)[:20]}; expected {spec.shape_text}")
