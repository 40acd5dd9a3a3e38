"""When a process that ended is started again, and when one that does not end is killed."""

from dataclasses import dataclass

__all__ = ["RestartPolicy"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Starts at once after a first end, later and later while ends follow each other.

    Attributes:
        first_delay_s: wait after the second end in a row; it doubles with every further one.
        max_delay_s: longest wait.
        healthy_s: life after which an end is a first one again.
        linger_s: what a process gets beyond the time it needs to end, before it is killed.
    """

    first_delay_s: float = 0.5
    max_delay_s: float = 10.0
    healthy_s: float = 30.0
    linger_s: float = 10.0

    def ends_in_a_row(self, before: int, life_s: float) -> int:
        """Return how many ends there have been in a row, this one included.

        Args:
            before: ends in a row before this one.
            life_s: how long the process has lived.
        """
        return 1 if life_s >= self.healthy_s else before + 1

    def delay_s(self, ends: int) -> float:
        """Return how long to wait after so many ends in a row, at least 1."""
        if ends <= 1:
            return 0.0
        doublings = min(ends - 2, 32)  # more would leave the range of a float
        return min(self.max_delay_s, self.first_delay_s * 2.0**doublings)
