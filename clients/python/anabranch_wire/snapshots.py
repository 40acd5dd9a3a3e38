"""What one answer was computed from: model, version, delta.

A `Snapshot` is the value that every scored answer names; rows and dense weights of one answer are
always of the same snapshot.
"""

import re
from dataclasses import dataclass
from typing import Self

from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import parse_version

__all__ = ["Snapshot"]

_FORM = re.compile(r"([1-9][0-9]{0,17})(?:\+(0|[1-9][0-9]{0,7}))?")


@dataclass(frozen=True, slots=True, order=True)
class Snapshot:
    """Identity of an immutable state of one model.

    Attributes:
        model: model name.
        version: number of the version folder, at least 1.
        delta: sequence number of the newest applied delta; 0 is the version as published.
    """

    model: str
    version: int
    delta: int = 0

    def __str__(self) -> str:
        return f"{self.version}+{self.delta}" if self.delta else str(self.version)

    @classmethod
    def parse(cls, model: str, text: str) -> Self:
        """Read `42` or `42+17`.

        Raises:
            InvalidInput: `text` has another form.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidInput(f"snapshot {text!r}: expected VERSION or VERSION+DELTA, as in 42+17")
        return cls(model, parse_version(match[1]), int(match[2] or 0))
