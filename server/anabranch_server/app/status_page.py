"""The status page: what is served and by whom, as plain HTML without script.

Every value is escaped where it enters the page, whoever made it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from anabranch_server.describe import ModelView, WorkerView

__all__ = ["POLICY", "STYLE", "Status", "render_status"]

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of the page."""

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; }
table { border-collapse: collapse; width: 100%; }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; }
th { font-weight: 600; white-space: nowrap; }
td:first-child, td:last-child { overflow-wrap: anywhere; min-width: 6rem; }
.good { color: light-dark(#1a7f37, #4ac26b); }
.bad { color: light-dark(#b42318, #ff7b72); }
.none { opacity: .65; }
"""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>anabranch</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="status.css">
</head>
<body>
<h1>anabranch {version}</h1>
<p class="{tone}">{condition}</p>
<p><a href="docs">Admin API</a></p>
<h2>Models</h2>
{models}
<h2>Workers</h2>
{workers}
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Status:
    """What the page shows.

    Attributes:
        version: of the server.
        fault: why the server is not ready; empty if it is.
        models: every model.
        workers: every worker.
    """

    version: str
    fault: str
    models: Sequence[ModelView]
    workers: Sequence[WorkerView]


def render_status(status: Status) -> str:
    """Return the page."""
    return _PAGE.format(
        version=escape(status.version),
        tone="bad" if status.fault else "good",
        condition=escape(f"Not ready: {status.fault}" if status.fault else "Ready"),
        models=_table(
            ("Model", "State", "Version", "Delta", "Labels", "Last error"),
            [row for model in status.models for row in _model_rows(model)],
            "The repository has no model.",
        ),
        workers=_table(
            ("Worker", "Process", "State", "Started", "Restarts", "Serves"),
            [_worker_row(worker) for worker in status.workers],
            "No worker is known.",
        ),
    )


def _model_rows(model: ModelView) -> Iterable[Sequence[str]]:
    """One row per loaded version, newest first; one in all where nothing is loaded."""
    error = model.last_error
    failure = ""
    if error is not None:
        about = "" if error.version is None else f", version {error.version}"
        failure = f"{_time(error.when)}{about}: {error.reason}: {error.error}"
    if not model.versions:
        yield (
            _cell(model.name),
            _state(model.state),
            _cell(""),
            _cell(""),
            _cell(""),
            _cell(failure),
        )
    for index, version in enumerate(model.versions):
        labels = [label for label, number in model.labels.items() if number == version.version]
        yield (
            _cell(model.name),
            _state(version.state),
            _cell(str(version.version)),
            _cell(str(version.delta)),
            _cell(", ".join(sorted(labels))),
            _cell("" if index else failure),
        )


def _worker_row(worker: WorkerView) -> Sequence[str]:
    serves = ", ".join(
        f"{model} {snapshot}" for model, snapshot in sorted(worker.snapshots.items())
    )
    return (
        _cell(str(worker.index)),
        _cell(str(worker.pid)),
        _cell(worker.state),
        _cell(_time(worker.started)),
        _cell(str(worker.restarts)),
        _cell(serves),
    )


def _table(heads: Iterable[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    if not rows:
        return f'<p class="none">{escape(empty)}</p>'
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _state(state: str) -> str:
    return f'<td class="{"good" if state == "READY" else "bad"}">{escape(state)}</td>'


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
