"""Faults of the optimiser: a version that can be served whole is served whole, and says why.

A graph that runs can have more forms than the analyses of it foresee. What they trip over is our
fault, not that of whoever published the version, and no reason to keep the version from serving.
"""

import logging
from typing import Final

from anabranch_wire.errors import AnabranchError, Cancelled, DeadlineExceeded, TooLarge, Unavailable

__all__ = ["NOT_FAULTS", "fault_note"]

_log = logging.getLogger(__name__)

NOT_FAULTS: Final = (Cancelled, DeadlineExceeded, TooLarge, Unavailable)
"""Errors that are none of the optimiser: memory, the cache, and whoever gave up waiting."""
_SHOWN: Final = 200


def fault_note(error: Exception) -> str:
    """Log what the optimiser tripped over, and return what a modeller should know of it."""
    _log.error("a version is served whole: the optimiser fails on its graph", exc_info=error)
    known = isinstance(error, AnabranchError)
    what = (
        error.message if isinstance(error, AnabranchError) else f"{type(error).__name__}: {error}"
    )
    words = "refuses the graph" if known else "fails on the graph; the log of the loader says where"
    return f"its lookups stay in the graph: the optimiser {words}: {what[:_SHOWN]}"
