"""Changes that operators ask for, with one log line for each: who may read logs sees who did what.

Every door asks for changes here and not at the `Administration` itself.
"""

import logging
from collections.abc import Mapping
from typing import Final

from anabranch_server.administration import (
    Action,
    ActionRequest,
    Administration,
    LogView,
    OperationView,
)
from anabranch_server.describe import ModelView
from anabranch_wire.errors import AnabranchError

__all__ = ["Changes"]

_log = logging.getLogger(__name__)

_SUBJECT: Final = None
"""Name of the caller's token; the admin ports know no tokens yet."""


class Changes:
    """What of an `Administration` changes something. Belongs to the supervisor's event loop.

    Args:
        administration: makes the changes.
    """

    def __init__(self, administration: Administration) -> None:
        self._administration = administration

    async def act(self, action: Action, model: str, request: ActionRequest) -> OperationView:
        """See `Administration.act`."""
        try:
            operation = await self._administration.act(action, model, request)
        except AnabranchError:
            _line(action, model, "refused")
            raise
        _line(action, model, operation.state.lower(), operation.id)
        return operation

    async def set_labels(self, model: str, labels: Mapping[str, int | None]) -> ModelView:
        """See `Administration.set_labels`."""
        try:
            view = await self._administration.set_labels(model, labels)
        except AnabranchError:
            _line("labels", model, "refused")
            raise
        _line("labels", model, "done")
        return view

    def log(self, level: str | None, access: bool | None) -> LogView:
        """See `Administration.log`; nothing to change is no change."""
        if level is None and access is None:
            return self._administration.log(None, None)
        try:
            view = self._administration.log(level, access)
        except AnabranchError:
            _line("log", None, "refused")
            raise
        _line("log", None, "done")
        return view

    async def trace(self, seconds: float) -> bytes:
        """See `Administration.trace`."""
        try:
            recorded = await self._administration.trace(seconds)
        except AnabranchError:
            _line("trace", None, "refused")
            raise
        _line("trace", None, "done")
        return recorded


def _line(action: str, model: str | None, result: str, operation: str | None = None) -> None:
    """Write the line; names that callers made up are cut."""
    fields = {
        "event": "admin",
        "action": action,
        "model": None if model is None else model[:140],
        "subject": _SUBJECT,
        "result": result,
        "operation": operation,
    }
    about = "" if model is None else f" {model[:140]}"
    _log.info("%s%s: %s", action, about, result, extra=fields)
