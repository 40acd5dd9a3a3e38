"""A report as one page of HTML that needs nothing but itself."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from anabranch_graph_opt.reporting.picture import picture
from anabranch_graph_opt.reporting.report import Report
from anabranch_graph_opt.reporting.words import (
    ROLES,
    bytes_text,
    headline,
    input_text,
    marked,
    parity_text,
)

__all__ = ["html_report"]

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left; }
td { vertical-align: top; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; }
figure { margin: 1rem 0; overflow-x: auto; }
svg { min-width: 48rem; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg text { fill: #111; } svg .title { font-weight: 600; }
svg .word { font-size: 12px; fill: currentColor; }
svg .flow { fill: none; stroke: #888; stroke-width: 1.5; marker-end: url(#tip); }
svg marker path { fill: #888; }
svg rect { stroke: #8888; }
svg .inputs { fill: #e8e8e8; } svg .prelude { fill: #fde7c7; } svg .store { fill: #cfe8ff; }
svg .user { fill: #e3d6ff; } svg .dense, svg .whole { fill: #cdeccd; }
"""
_HEAD: Final = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'\">\n"
)


def html_report(report: Report) -> str:
    """Return a report as an HTML document without scripts and without anything from elsewhere."""
    return "\n".join(_parts(report)) + "\n"


def _parts(report: Report) -> Iterator[str]:
    yield f"{_HEAD}<title>{marked(report.model)}: optimizer report</title>"
    yield f"<style>{_STYLE}</style>\n</head>\n<body>"
    yield f"<h1>{marked(report.model)}</h1>"
    yield f"<p><strong>{marked(headline(report))}</strong></p>"
    yield f"<p>{marked(parity_text(report))}</p>"
    yield f"<figure>\n{picture(report)}\n</figure>"
    if report.left:
        yield "<h2>Lookups left in the graph</h2>"
        heads = ("table", "rows", "dim", "bytes", "at", "why, and what to change in the export")
        yield _table(
            heads,
            (
                (one.table, one.rows, one.dim, one.bytes, one.node, one.reason)
                for one in report.left
            ),
        )
    if report.cut:
        yield "<h2>Lookups that were cut</h2>"
        rows = ((one.table, one.rows, one.dim, one.bytes, one.ids) for one in report.cut)
        yield _table(("table", "rows", "dim", "bytes", "ids from"), rows)
    yield "<h2>Inputs</h2>"
    yield _table(
        ("input", "goes to", "computed"),
        (
            (
                input_text(one),
                ", ".join(one.goes) or "nothing",
                "once per user" if one.is_user else "per row",
            )
            for one in report.inputs
        ),
    )
    if report.tables:
        yield "<h2>Tables in the store</h2>"
        yield _table(
            ("table", "rows", "dim", "kept as", "bytes", "lookups"),
            ((t.name, t.rows, t.dim, t.dtype, t.bytes, t.lookups) for t in report.tables),
        )
    if report.buffers:
        yield "<h2>Buffers</h2>"
        yield _table(
            ("buffer", "a row for each", "type", "columns"),
            ((one.name, one.side, one.dtype, one.columns) for one in report.buffers),
        )
    yield "<h2>Graphs</h2>"
    yield _table(
        ("file", "part", "nodes", "size"),
        ((g.file, ROLES[g.role], g.nodes, bytes_text(g.bytes)) for g in report.graphs),
    )
    if report.notes:
        yield "<h2>Notes</h2>\n<ul>"
        yield from (f"<li>{marked(note)}</li>" for note in report.notes)
        yield "</ul>"
    yield (
        f"<p>Structure <code>{marked(report.structure_hash or 'unknown')}</code>. Took "
        f"{report.seconds:.1f} s and {marked(bytes_text(report.peak_bytes))} of memory at most.</p>"
    )
    yield "</body>\n</html>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    listed = [tuple(row) for row in rows]
    first = listed[0] if listed else heads
    numeric = [isinstance(cell, int) for cell in first]
    lines = ["<table>", "<tr>"]
    for head, is_number in zip(heads, numeric, strict=True):
        lines.append(f"<th{_kind(is_number)}>{marked(head)}</th>")
    lines.append("</tr>")
    for row in listed:
        cells = zip(row, numeric, strict=True)
        words = "".join(f"<td{_kind(number)}>{marked(str(cell))}</td>" for cell, number in cells)
        lines.append(f"<tr>{words}</tr>")
    return "\n".join([*lines, "</table>"])


def _kind(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
