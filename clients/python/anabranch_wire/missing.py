"""What a lookup yields for a key that its table does not hold: one of five policies."""

import math
from typing import Annotated

from msgspec import Meta

from anabranch_wire.documents import Document
from anabranch_wire.errors import InvalidInput

__all__ = ["FallbackKey", "Missing", "Original", "Refuse", "Vector", "Zeros", "check_key"]


class Original(Document, frozen=True, kw_only=True, tag_field="policy", tag="original"):
    """What the ONNX operator did, an error included; negative ids count from the end."""


class Zeros(Document, frozen=True, kw_only=True, tag_field="policy", tag="zeros"):
    """A row of zeros."""


class Vector(Document, frozen=True, kw_only=True, tag_field="policy", tag="vector"):
    """A given row.

    Attributes:
        value: as many finite numbers as the table's `dim`.
    """

    value: Annotated[tuple[float, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in self.value):
            raise InvalidInput("value: expected finite numbers")


class FallbackKey(Document, frozen=True, kw_only=True, tag_field="policy", tag="key"):
    """The row of another key.

    Attributes:
        key: that key, as a signed or unsigned 64-bit integer.
    """

    key: int

    def __post_init__(self) -> None:
        check_key("key", self.key)


class Refuse(Document, frozen=True, kw_only=True, tag_field="policy", tag="error"):
    """The request is refused, naming the key."""


Missing = Original | Zeros | Vector | FallbackKey | Refuse
"""One policy; in JSON an object whose `policy` tells which."""


def check_key(what: str, key: int) -> None:
    """Check that `key` is a signed or unsigned 64-bit integer; int64 and uint64 are the same bits.

    Raises:
        InvalidInput: it is not; the message calls it `what`.
    """
    if not -(2**63) <= key < 2**64:
        raise InvalidInput(f"{what} {key}: expected a 64-bit integer")
