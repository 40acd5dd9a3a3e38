"""What a ranking request asks for beside its features."""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch_wire.errors import InvalidInput

__all__ = ["RankOptions", "rank_options"]


@dataclass(frozen=True, slots=True)
class RankOptions:
    """See `Client.rank`."""

    top_k: int = 0
    outputs: tuple[str, ...] = ()
    explain: bool = False
    priority: int = 0
    routing_key: str | None = None


def rank_options(
    top_k: int | None,
    outputs: Sequence[str] | None,
    explain: bool,
    priority: int,
    routing_key: str | int | None,
) -> RankOptions:
    """Return arguments of a ranking call as they are sent.

    Raises:
        InvalidInput: one is of another type.
    """
    if isinstance(outputs, str):
        raise InvalidInput(f"outputs: expected a list of names, as in [{outputs!r}]")
    for name, number in (("top_k", top_k or 0), ("priority", priority)):
        if (
            isinstance(number, bool)
            or not hasattr(number, "__index__")
            or not (0 <= number < 1 << 32)
        ):
            raise InvalidInput(f"{name}: expected an integer from 0 on, got {number!r}")
    return RankOptions(
        int(top_k or 0),
        tuple(outputs or ()),
        bool(explain),
        int(priority),
        None if routing_key is None else str(routing_key),
    )
