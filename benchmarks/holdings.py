"""What the processes of a server hold over time, and whether it grows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import rows as results
from anabranch_testing.server_processes import Resources, Role, ServerProcesses, resources_of

__all__ = ["Growth", "Holdings", "growth_of", "growth_rows"]

_WARM_UP: Final = 0.1
_PART: Final = 0.1


@dataclass(frozen=True, slots=True)
class Growth:
    """The last tenth of a run against its second tenth; medians of both.

    Attributes:
        memory: ratio.
        first_mib: memory at first.
        last_mib: memory at last.
        threads: how many more.
        descriptors: how many more.
    """

    memory: float
    first_mib: float
    last_mib: float
    threads: float
    descriptors: float


class Holdings:
    """Looks at every process from time to time.

    Args:
        processes: whose.
    """

    def __init__(self, processes: ServerProcesses) -> None:
        self._processes = processes
        self._seen: dict[Role, list[Resources]] = {}

    def look(self) -> None:
        """Note what each role holds now, all of its processes together."""
        held: dict[Role, list[Resources]] = {}
        for pid, role in self._processes.all().items():
            found = resources_of(pid)
            if found is not None:
                held.setdefault(role, []).append(found)
        for role, parts in held.items():
            total = Resources(
                sum(part.held_bytes for part in parts),
                sum(part.threads for part in parts),
                sum(part.descriptors for part in parts),
            )
            self._seen.setdefault(role, []).append(total)

    def growth(self) -> dict[Role, Growth]:
        """Return how much each role's holdings grew; roles that were hardly seen are left out."""
        return {role: growth_of(seen) for role, seen in self._seen.items() if len(seen) >= 3}


def growth_of(seen: Sequence[Resources]) -> Growth:
    """Compare the end with the beginning, without what comes before everything is warm.

    Args:
        seen: at least one look, in order.
    """
    start = int(len(seen) * _WARM_UP)
    part = max(1, int(len(seen) * _PART))
    first, last = seen[start : start + part], seen[-part:]

    def middle(looks: Sequence[Resources], name: str) -> float:
        return float(median(getattr(look, name) for look in looks))

    first_bytes, last_bytes = middle(first, "held_bytes"), middle(last, "held_bytes")
    return Growth(
        memory=last_bytes / first_bytes if first_bytes else 1.0,
        first_mib=first_bytes / 2**20,
        last_mib=last_bytes / 2**20,
        threads=middle(last, "threads") - middle(first, "threads"),
        descriptors=middle(last, "descriptors") - middle(first, "descriptors"),
    )


def growth_rows(
    target: str, what: str, growth: Mapping[Role, Growth], distributions: Sequence[str]
) -> Iterator[results.Row]:
    """Yield a row for the memory of each role; a count of one long run, not a speed: no rounds.

    Args:
        target: its number.
        what: was done, in words.
        growth: of each role.
        distributions: whose versions matter.
    """
    for role, one in growth.items():
        yield results.measured(
            target,
            f"{what}: memory of the {role}, last tenth against the first after a warm-up",
            [one.memory],
            goal="<= 1.02",
            unit="of the first",
            yardstick=f"{one.first_mib:.1f} MiB",
            figures={
                "last MiB": one.last_mib,
                "more threads": one.threads,
                "more descriptors": one.descriptors,
            },
            distributions=distributions,
        )
