"""The status page: what is served, how fresh, by whom, and what goes on, as HTML without script.

Every value is escaped where it enters the page, whoever made it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from anabranch_server.administration import OperationView
from anabranch_server.ages import age
from anabranch_server.describe import FailureView, ModelView, VersionView, WorkerView

__all__ = ["POLICY", "Status", "render_status"]

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of the page."""

_ENDED_SHOWN: Final = 10

_TONES: Final = {
    "READY": "good",
    "serving": "good",
    "DONE": "good",
    "LOADING": "busy",
    "UNLOADING": "busy",
    "RUNNING": "busy",
    "starting": "busy",
    "draining": "busy",
    "UNAVAILABLE": "bad",
    "FAILED": "bad",
    "dead": "bad",
}

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>anabranch: {title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="status.css">
</head>
<body>
<header><h1>anabranch {version}</h1>{condition}<a href="docs">Admin API</a></header>
{fault}
{operations}
<h2>Models</h2>
{models}
<h2>Workers</h2>
{workers}
<p class="quiet">as of {now}</p>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Status:
    """What the page shows.

    Attributes:
        version: of the server.
        now: seconds since 1970.
        fault: why the server is not ready; empty if it is.
        models: every model.
        operations: actions at work and some that ended, newest first.
        workers: every worker.
    """

    version: str
    now: float
    fault: str
    models: Sequence[ModelView]
    operations: Sequence[OperationView]
    workers: Sequence[WorkerView]


def render_status(status: Status) -> str:
    """Return the page."""
    now = status.now
    return _PAGE.format(
        title="not ready" if status.fault else "ready",
        version=escape(status.version),
        condition=_mark("Not ready", "bad") if status.fault else _mark("Ready", "good"),
        fault=f'<p class="bad">Not ready: {escape(status.fault)}</p>' if status.fault else "",
        operations=_operations(status.operations, now),
        models="\n".join(_model(model, now) for model in status.models)
        or _none("The repository has no model."),
        workers=_card(
            _table(
                ("Worker", "Process", "State", "Started", "Restarts", "Serves"),
                [_worker(worker, now) for worker in status.workers],
            )
        )
        if status.workers
        else _none("No worker is known."),
        now=_clock(now),
    )


def _operations(operations: Sequence[OperationView], now: float) -> str:
    if not operations:
        return ""
    running = [one for one in operations if one.state == "RUNNING"]
    ended = [one for one in operations if one.state != "RUNNING"][:_ENDED_SHOWN]
    rows = [_operation(one, now) for one in (*running, *ended)]
    heads = ("Operation", "Action", "Model", "State", "Phase", "Progress", "Begun", "Error")
    return f"<h2>Operations</h2>\n{_card(_table(heads, rows))}"


def _operation(one: OperationView, now: float) -> Sequence[str]:
    progress = ""
    if one.state == "RUNNING" and one.progress is not None:
        shown = max(0.0, min(1.0, one.progress))
        progress = f'<span><progress value="{shown:.3f}"></progress> {shown:.0%}</span>'
    lasted = "" if one.ended is None else f", took {age(one.ended - one.started)}"
    return (
        escape(one.id),
        escape(one.action),
        escape(one.model),
        _state(one.state),
        escape(one.phase or "") if one.state == "RUNNING" else "",
        progress,
        _ago(one.started, now) + escape(lasted),
        _error(one.error or ""),
    )


def _model(model: ModelView, now: float) -> str:
    marks = [_state(model.state)]
    if model.pinned is not None:
        marks.append(_mark(f"held at {model.pinned}", "busy"))
    labels = ", ".join(f"{name} = {number}" for name, number in sorted(model.labels.items()))
    policy = ", ".join(f"{name}: {value}" for name, value in (model.policy or {}).items())
    facts = [("labels", labels), ("policy", policy)]
    said = " ".join(
        f'<span class="quiet">{escape(name)} {escape(text)}</span>' for name, text in facts if text
    )
    head = f"<header><h3>{escape(model.name)}</h3>{''.join(marks)}{said}</header>"
    versions = (
        _table(
            ("Version", "Delta", "State", "Labels", "Data", "Published", "Served since", "Error"),
            [_version(model, version, now) for version in model.versions],
        )
        if model.versions
        else _none("No version is loaded.")
    )
    return _card(f"{head}\n{versions}\n{_failure(model.last_error, now)}")


def _version(model: ModelView, version: VersionView, now: float) -> Sequence[str]:
    labels = sorted(label for label, number in model.labels.items() if number == version.version)
    state = _mark("kept", "quiet") if version.kept else _state(version.state)
    data = "" if version.event_time is None else f"{escape(age(now - version.event_time))} old"
    return (
        escape(str(version.version)),
        escape(str(version.delta)) if version.delta else "",
        state,
        escape(", ".join(labels)),
        f"<span>{data}</span>" if data else "",
        _ago(version.published, now),
        _ago(version.applied, now),
        _error(version.last_error or ""),
    )


def _failure(failure: FailureView | None, now: float) -> str:
    if failure is None:
        return ""
    about = "" if failure.version is None else f", version {failure.version}"
    if failure.delta is not None:
        about += f", delta {failure.delta}"
    said = escape(f"{about}: {failure.reason}: {failure.error}")
    return f'<p class="bad error">Last error {_ago(failure.when, now)}{said}</p>'


def _worker(worker: WorkerView, now: float) -> Sequence[str]:
    serves = ", ".join(
        f"{model} {snapshot}" for model, snapshot in sorted(worker.snapshots.items())
    )
    return (
        escape(str(worker.index)),
        escape(str(worker.pid)),
        _state(worker.state),
        _ago(worker.started, now),
        escape(str(worker.restarts)),
        escape(serves),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; columns that are empty everywhere are left out."""
    listed = list(rows)
    used = [at for at in range(len(heads)) if any(row[at] for row in listed)]
    head = "".join(f'<th scope="col">{escape(heads[at])}</th>' for at in used)
    body = "\n".join(
        f"<tr>{''.join(_cell(heads[at], row[at]) for at in used)}</tr>" for row in listed
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _cell(head: str, html: str) -> str:
    return f'<td data-head="{escape(head)}">{html}</td>'


def _card(html: str) -> str:
    return f'<section class="card">{html}</section>'


def _none(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'


def _error(text: str) -> str:
    return f'<span class="bad error">{escape(text)}</span>' if text else ""


def _state(state: str) -> str:
    return _mark(state, _TONES.get(state, "quiet"))


def _mark(text: str, tone: str) -> str:
    return f'<span class="mark {tone}">{escape(text)}</span>'


def _ago(when: float | None, now: float) -> str:
    if when is None:
        return ""
    return f'<time title="{_clock(when)}">{escape(age(now - when))} ago</time>'


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # publishers may say any time
        return f"{seconds:g} s after 1970"
