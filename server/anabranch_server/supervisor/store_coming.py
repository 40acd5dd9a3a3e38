"""What a switch is about to make of a store: staged rows, or a generation made beside the others.

Each is all that can fail of it: what takes effect later needs no room, memory or file any more.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from anabranch_runtime.store import Capacity, Segment, StoreFull, StoreWriter
from anabranch_runtime.store import Change as RowChange
from anabranch_server.processes.plans import GenerationPlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_replay import replayed
from anabranch_server.supervisor.uninterrupted import in_thread
from anabranch_wire.errors import Unavailable

__all__ = ["Coming", "Fill", "made_anew", "staged", "with_room"]

Fill = Callable[[RowChange], None]
"""Says what changes; called in a thread."""


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """What the switch at work makes of a store.

    Attributes:
        delta: that its newest rows are at then.
        place: where those are.
        change: that makes them; None where no row changes.
        room: of the generation that takes over from the newest one; None where none does.
    """

    delta: int
    place: GenerationPlan
    change: RowChange | None = None
    room: tuple[Capacity, ...] | None = None


async def staged(writer: StoreWriter, fills: Sequence[Fill]) -> RowChange:
    """Return a change that is ready to be applied; nothing else may be at work on the generation.

    Raises:
        NoRoom: it does not fit.
        AnabranchError: what a fill raises.
    """

    def prepare() -> RowChange:
        change = writer.begin()
        try:
            for fill in fills:
                fill(change)
        except BaseException:
            change.close()
            raise
        return change

    try:
        return await in_thread(prepare, RowChange.close)
    except StoreFull as error:
        raise NoRoom(error.message) from None


async def made_anew(
    segment: Segment,
    capacities: Sequence[Capacity],
    most_keys: Sequence[int],
    fills: Iterable[Fill],
    available_bytes: int | None,
) -> tuple[StoreWriter, tuple[Capacity, ...]]:
    """Return the writer of another generation over a segment, and its room; see `replayed`.

    Raises:
        NoRoom: what changes is more than the tables may have.
        TooLarge: there is no memory for it; the message has the numbers.
        Unavailable: there is none to be had.
        AnabranchError: what a fill raises.
    """

    def make() -> tuple[StoreWriter, tuple[Capacity, ...]]:
        try:
            writer, room = replayed(segment, capacities, most_keys, fills, available_bytes)
        except OSError as error:
            text = f"the tables cannot be made anew: {error.strerror}"
            raise Unavailable(text) from None
        return writer, tuple(room)

    return await in_thread(make)


async def with_room(
    change: Callable[[Sequence[Fill]], Awaitable[None]], ways: Sequence[Sequence[Fill]]
) -> None:
    """Change rows in the first of several ways that there is room for.

    Raises:
        NoRoom: there is none for any.
        AnabranchError: as `change` raises it.
    """
    *others, last = ways
    for fills in others:
        try:
            await change(fills)
        except NoRoom:
            continue
        return
    await change(last)
