"""A request in two forms: as callers send it, and as the graph takes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Example"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One request; the two forms are the same where no rows are looked up.

    Attributes:
        name: how messages call it.
        request: what callers send, features in their normal form: flat ids with lengths beside
            them, or [N, L].
        inputs: one array for each input of the graph.
        expected: answers by output; may be empty.
    """

    name: str
    request: Mapping[str, Array]
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array] = field(default_factory=dict)
