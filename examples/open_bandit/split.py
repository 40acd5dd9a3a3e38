"""Where the log is cut: what the model is trained on, and what it has not seen."""

import datetime
from typing import Final

__all__ = ["SPLIT"]

SPLIT: Final = datetime.date(2019, 11, 29)
"""First (UTC) of the two days that the model is judged on; it is trained on the five before."""
