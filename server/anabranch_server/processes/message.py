"""What every message between the processes of a server has in common."""

import msgspec

__all__ = ["Message"]


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages; the tag is the name of the class."""

    @property
    def descriptors(self) -> int:
        """How many descriptors travel with this message, no more and no less."""
        return 0
