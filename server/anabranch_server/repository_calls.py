"""The Open Inference Protocol's repository, logging and trace extensions, for both admin doors.

They say what Triton's clients understand in terms of an `Administration`: `load_model` is a load of
what the policy names, `unload_model` an unload of everything.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from anabranch_server.administration import Action, ActionRequest, Administration, LogView
from anabranch_server.audit import Changes
from anabranch_server.config import LogLevel
from anabranch_server.describe import IndexEntry
from anabranch_wire.errors import DeadlineExceeded, InvalidInput, Unavailable, Unsupported

__all__ = ["LogSetting", "RepositoryCalls"]

LogSetting = bool | int | str
"""Value of a log setting; switches are bool, `log_verbose_level` is int."""

_LONGEST_S: Final = 3600.0
_LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")
_SWITCHES: Final = ("log_verbose_level", "log_info", "log_warning", "log_error")
"""One for each level, in the same order."""


class RepositoryCalls:
    """Answers of the extensions. Belongs to the supervisor's event loop.

    Args:
        administration: answers.
        changes: changes.
    """

    def __init__(self, administration: Administration, changes: Changes) -> None:
        self._administration = administration
        self._changes = changes

    async def index(self, repository: str, *, only_ready: bool) -> list[IndexEntry]:
        """Return every version and its state.

        Args:
            repository: which one; there is only one, and it has no name.
            only_ready: leave out what cannot answer now.

        Raises:
            Unsupported: a repository is named.
        """
        _check_repository(repository)
        return self._administration.index(only_ready=only_ready)

    async def load(self, repository: str, model: str, parameters: Collection[str]) -> None:
        """Load what the policy of a model names, and return when that is served.

        Args:
            repository: as for `index`.
            model: model name.
            parameters: names of the parameters of the call.

        Raises:
            NotFound: there is no such model.
            Conflict: an action on the model is at work already.
            Unavailable: it failed; says why.
            Unsupported: a repository, a configuration or files are sent along.
            InvalidInput: another parameter is.
        """
        _check_repository(repository)
        for name in parameters:
            if name == "config" or name.startswith("file:"):
                raise Unsupported(
                    f"parameter {name[:80]!r}: models are loaded as the repository has them; "
                    "put files there and configuration into serving.yaml"
                )
            raise InvalidInput(f"parameter {name[:80]!r}: a load takes none")
        await self._finish("load", model)

    async def unload(self, repository: str, model: str) -> None:
        """Unload a model, and return when nothing of it is served. Takes any parameter.

        Raises:
            NotFound: there is no such model.
            Conflict: an action on the model is at work already.
            Unavailable: it failed; says why.
            Unsupported: a repository is named.
        """
        _check_repository(repository)
        await self._finish("unload", model)

    async def log_settings(self, wanted: Mapping[str, LogSetting | None]) -> dict[str, LogSetting]:
        """Change what is logged and return all log settings.

        Args:
            wanted: setting -> value; None leaves it.

        Raises:
            InvalidInput: no such setting, a value of another type, or switches that no one level
                stands for.
            Unsupported: the setting cannot be changed.
        """
        now = self._administration.log(None, None)
        named = {name: value for name, value in wanted.items() if value is not None}
        if named:
            level, access = _asked(_settings(now), named)
            now = self._changes.log(level, access)
        return _settings(now)

    async def trace_settings(
        self, model: str, wanted: Mapping[str, Sequence[str]]
    ) -> dict[str, list[str]]:
        """Return the trace settings: requests are never traced one by one.

        Args:
            model: whose settings; empty for the server's.
            wanted: settings to change; only what is can be set.

        Raises:
            NotFound: there is no such model.
            Unsupported: a setting would change.
        """
        if model:
            self._administration.model(model)
        settings = {"trace_level": ["OFF"]}
        for name, values in wanted.items():
            if values and list(values) != settings.get(name):
                raise Unsupported(
                    f"trace setting {name[:80]!r}: record a trace of all workers with "
                    "POST /admin/v1/trace?seconds=5 on the admin port"
                )
        return settings

    async def _finish(self, action: Action, model: str) -> None:
        operation = await self._changes.act(action, model, ActionRequest(wait_s=_LONGEST_S))
        if operation.state == "RUNNING":
            raise DeadlineExceeded(f"{action} of {model!r} is still at work as {operation.id}")
        if operation.state != "DONE":
            reason = operation.error or operation.state.lower()
            raise Unavailable(f"{action} of {model!r}: {reason}")


def _check_repository(name: str) -> None:
    if name:
        raise Unsupported(f"repository {name[:80]!r}: this server has one, which has no name")


def _settings(view: LogView) -> dict[str, LogSetting]:
    at = _LEVELS.index(view.level)
    switches: dict[str, LogSetting] = {name: at <= level for level, name in enumerate(_SWITCHES)}
    return {
        "log_file": "",
        **switches,
        "log_verbose_level": int(at == 0),
        "log_format": "ISO8601",
        "access": view.access,
    }


def _asked(
    now: Mapping[str, LogSetting], named: Mapping[str, LogSetting]
) -> tuple[LogLevel | None, bool | None]:
    """Level and access that stand for changed settings; None for what was not named."""
    for name, value in named.items():
        known = now.get(name)
        if known is None:
            raise InvalidInput(f"log setting {name[:80]!r}: expected one of {', '.join(now)}")
        if type(value) is not type(known):
            raise InvalidInput(
                f"log setting {name!r}: expected {type(known).__name__}, got {value!r:.80}"
            )
        if isinstance(known, str) and value != known:
            raise Unsupported(
                f"log setting {name!r}: cannot be changed; lines go to standard output, "
                "their form is the setting log_format"
            )
    access = named.get("access")
    assert access is None or isinstance(access, bool)
    if not set(_SWITCHES) & set(named):
        return None, access
    on = [bool(named.get(name, now[name])) for name in _SWITCHES]
    if not on[-1] or on != sorted(on):
        raise InvalidInput(
            f"log settings {', '.join(_SWITCHES)}: one level is the least that is written, so what "
            f"follows one that is on must be on too; got {on}"
        )
    return _LEVELS[on.index(True)], access
