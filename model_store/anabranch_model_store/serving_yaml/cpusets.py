"""The text form of processor sets: `0-3,8;4-7` is one set for each executor of the machine."""

import re
from typing import Final

from anabranch_wire.errors import InvalidInput

__all__ = ["parse_cpusets"]

_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def parse_cpusets(text: str) -> tuple[frozenset[int], ...]:
    """Return the processors of each executor, worker 0's first; "" is none at all.

    Raises:
        InvalidInput: `text` has another form, or a range runs backwards.
    """
    if not text.strip():
        return ()
    return tuple(_processors(entry, text) for entry in text.split(";"))


def _processors(entry: str, text: str) -> frozenset[int]:
    processors: set[int] = set()
    for part in entry.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidInput(
                f"found {part.strip()[:40]!r} in {text[:80]!r}; "
                "expected processors such as '0-3,8', one entry for each executor, joined by ';'"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InvalidInput(f"the range {part.strip()} runs backwards")
        processors.update(range(first, last + 1))
    return frozenset(processors)
