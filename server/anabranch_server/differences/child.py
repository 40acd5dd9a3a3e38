"""What the process that compares snapshots says when it ends, on its standard output."""

import msgspec

__all__ = ["ComparisonFailed"]


class ComparisonFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why nothing came of a comparison.

    Attributes:
        kind: name of the error's class.
        error: its text.
    """

    kind: str
    error: str
