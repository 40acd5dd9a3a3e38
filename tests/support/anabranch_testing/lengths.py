"""How long the tests are that have two forms: a short one for every change, a long one for soaks.

Both look for the same kinds of faults; the long one looks longer, or in more places. Tests with a
long form are marked `soak`, and `make soak` runs it.
"""

import os

__all__ = ["is_soak", "length"]


def is_soak() -> bool:
    """Return whether long forms are asked for: `ANABRANCH_SOAK=1`."""
    return os.environ.get("ANABRANCH_SOAK", "") == "1"


def length(short: int, long: int, name: str = "") -> int:
    """Return how much a test does.

    Args:
        short: in every run.
        long: in a soak.
        name: environment variable that sets another number; empty where there is none.
    """
    return int(os.environ.get(name, "") or (long if is_soak() else short))
