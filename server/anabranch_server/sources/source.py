"""What stands before the watcher: whatever brings news of a repository, near or far."""

from typing import Protocol

__all__ = ["NoSource", "Source"]


class Source(Protocol):
    """Brings news of a repository. Belongs to the event loop."""

    async def begin(self) -> None:
        """Return when the folder may be looked at for the first time."""
        ...

    async def refresh(self) -> None:
        """Make the folder show what the repository had when this was called.

        Raises:
            Unavailable: the repository is not to be had.
        """
        ...

    async def run(self) -> None:
        """Bring news until cancelled."""
        ...


class NoSource:
    """A folder that is looked at now and then, and tells nothing itself."""

    async def begin(self) -> None:
        """See `Source`."""

    async def refresh(self) -> None:
        """See `Source`."""

    async def run(self) -> None:
        """See `Source`."""
