"""The executors of one model in one process, and the queue in front of them."""

from anabranch_runtime.requests import Ticket
from anabranch_runtime.settings import GroupSettings

__all__ = ["SessionGroup"]


class SessionGroup:
    """Seam under construction: doors call `submit` and read `settings`."""

    settings: GroupSettings

    def submit(self, ticket: Ticket) -> None:
        """Queue `ticket`; its sink gets it back finished."""
        raise NotImplementedError
