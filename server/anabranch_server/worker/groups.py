"""The end of what a session group has: engines that nobody uses any more, and the group itself.

Both take as long as freeing their memory takes; for threads that hold up no request.
"""

import logging

from anabranch_runtime.allocator import give_back_free_memory
from anabranch_runtime.session_group import SessionGroup

__all__ = ["close_group", "free_engines"]

_log = logging.getLogger(__name__)


def free_engines(group: SessionGroup) -> int:
    """Free what a group has for versions that are gone; returns how many engines that were."""
    freed = group.free_unused()
    if freed:
        give_back_free_memory()
    return freed


def close_group(model: str, group: SessionGroup) -> bool:
    """Close a group that nobody submits to any more; returns whether its executors ended."""
    if group.close():
        give_back_free_memory()
        return True
    _log.warning(
        "model %s is still computing and was abandoned",
        model,
        extra={"event": "group_abandoned", "model": model},
    )
    return False
