"""Actions on a running server, followed to their end."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol
from urllib.parse import quote

from anabranch_server.commands.http_json import Answer, call
from anabranch_server.commands.output import fail, print_json, say
from anabranch_wire.errors import Unavailable

__all__ = ["carry_out", "check_admin", "only_model"]

_FIRST_WAIT_S: Final = 0.5
_POLL_S: Final = 0.2
_SILENCE_S: Final = 10.0
"""How long a supervisor may be away: it is started again when it dies."""

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404


def carry_out(
    action: str,
    model: str | None,
    body: Mapping[str, object],
    *,
    admin: str,
    wait_s: float,
    as_json: bool,
) -> None:
    """Begin an action, show how far it is, and leave with its result.

    Args:
        action: what to do.
        model: model name; None for the only one.
        body: what the action is told; None values are left out.
        admin: URL of the admin port.
        wait_s: how long to wait for the end; 0 only begins it.
        as_json: print the operation as JSON.
    """
    name = only_model(admin) if model is None else model
    told = {key: value for key, value in body.items() if value is not None}
    told["wait_s"] = min(wait_s, _FIRST_WAIT_S)
    place = f"/admin/v1/models/{quote(name, safe='')}/{action}"
    operation = _operation(check_admin(admin, call(admin, place, json.dumps(told).encode())))
    if wait_s:
        operation = _follow(admin, operation, time.monotonic() + wait_s)
    if as_json:
        print_json(operation, compact=True)
    _conclude(operation, begun_only=not wait_s, quiet=as_json)
    if action == "reload" and operation["state"] == "DONE":
        _say_if_held(admin, name)


def only_model(admin: str) -> str:
    """Return the name of the server's model if it has exactly one; else leave with code 2."""
    answer = check_admin(admin, call(admin, "/admin/v1/models"))
    listed = answer.value.get("models") if isinstance(answer.value, dict) else None
    names = [str(each["name"]) for each in listed or []]
    if len(names) != 1:
        fail(f"name the model; the server has {', '.join(names) or 'none'}", code=2)
    return names[0]


def check_admin(admin: str, answer: Answer) -> Answer:
    """Return an answer that is a success; else say why it is none, and leave."""
    if not answer.ok:
        if answer.error.startswith("no such route"):
            fail(f"{admin} is not the admin port: {answer.error}")
        fail(answer.error, code=2 if answer.status == _BAD_REQUEST else 1)
    return answer


def _operation(answer: Answer) -> Mapping[str, object]:
    if not isinstance(answer.value, dict) or "state" not in answer.value:
        fail("the server does not answer as an admin port does")
    return answer.value


def _follow(admin: str, operation: Mapping[str, object], end_s: float) -> Mapping[str, object]:
    """Ask until the operation has ended or `end_s` has come, and return it."""
    if operation["state"] != "RUNNING":
        return operation
    heard_s = time.monotonic()
    with _display(operation) as display:
        while operation["state"] == "RUNNING" and time.monotonic() < end_s:
            display.show(operation)
            time.sleep(_POLL_S)
            try:
                answer = call(admin, f"/admin/v1/operations/{operation['id']}")
            except Unavailable:
                if time.monotonic() - heard_s > _SILENCE_S:
                    raise
                continue
            heard_s = time.monotonic()
            if answer.status == _NOT_FOUND or not _is_same(operation, answer):
                fail(
                    f"{operation['id']} is not known any more: the server was started again; "
                    "`anabranch status` says what is served"
                )
            operation = _operation(check_admin(admin, answer))
    return operation


def _is_same(operation: Mapping[str, object], answer: Answer) -> bool:
    """Whether an answer is about that operation: a server started anew begins its ids anew."""
    if not answer.ok or not isinstance(answer.value, dict):
        return True  # an error, said elsewhere
    names = ("id", "action", "model", "started")
    return all(answer.value.get(name) == operation[name] for name in names)


def _conclude(operation: Mapping[str, object], *, begun_only: bool, quiet: bool) -> None:
    about = f"{operation['action']} of {operation['model']}"
    state = operation["state"]
    if state == "DONE":
        if not quiet:
            print(f"{about}: done in {_seconds(operation):.1f} s")
    elif state == "RUNNING":
        if not begun_only:
            fail(f"{about} is still at work as {operation['id']}")
        if not quiet:
            print(f"{about}: begun as {operation['id']}")
    else:
        fail(f"{about}: {operation['error'] or str(state).lower()}")


def _say_if_held(admin: str, name: str) -> None:
    """Say so where a rollback holds a model: what is newer was looked at in vain."""
    value = call(admin, f"/admin/v1/models/{quote(name, safe='')}").value
    held = value.get("pinned") if isinstance(value, dict) else None
    if held is not None:
        say(f"{name} is held at {held}: versions and deltas after it wait for `anabranch unpin`")


def _seconds(operation: Mapping[str, object]) -> float:
    started, ended = operation["started"], operation["ended"]
    assert isinstance(started, int | float)
    assert isinstance(ended, int | float)
    return max(0.0, ended - started)


class _Display(Protocol):
    def show(self, operation: Mapping[str, object]) -> None:
        """Show how far an operation is."""


class _Lines:
    """One line on standard error for each phase."""

    def __init__(self) -> None:
        self._said: object = None

    def show(self, operation: Mapping[str, object]) -> None:
        phase = operation["phase"]
        if phase is not None and phase != self._said:
            self._said = phase
            say(f"{operation['action']} of {operation['model']}: {phase}")


@contextmanager
def _display(operation: Mapping[str, object]) -> Iterator[_Display]:
    """A bar on a terminal, lines elsewhere; both on standard error."""
    if not sys.stderr.isatty():
        yield _Lines()
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[phase]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        about = f"{operation['action']} of {operation['model']}"
        task = progress.add_task(about, total=None, phase="")

        class _Bar:
            def show(self, operation: Mapping[str, object]) -> None:
                part = operation["progress"]
                phase = str(operation["phase"] or "")
                if isinstance(part, int | float):
                    progress.update(task, total=1.0, completed=float(part), phase=phase)
                else:
                    progress.update(task, total=None, phase=phase)

        yield _Bar()
