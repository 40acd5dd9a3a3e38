"""A report for a terminal."""

from collections.abc import Iterator

from anabranch_graph_opt.reporting.report import Report
from anabranch_graph_opt.reporting.words import (
    ROLES,
    bytes_text,
    count_text,
    headline,
    input_text,
    parity_text,
    plain,
)

__all__ = ["text_report"]


def text_report(report: Report) -> str:
    """Return a report as lines of text; names in it have no control characters."""
    return "".join(f"{plain(line)}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.model}: {headline(report)}"
    yield parity_text(report)
    yield f"Took {report.seconds:.1f} s and {bytes_text(report.peak_bytes)} of memory at most."
    yield ""
    yield "Inputs"
    for one in report.inputs:
        user = ", once per user" if one.is_user else ""
        yield f"  {input_text(one)}: to {', '.join(one.goes) or 'nothing'}{user}"
    if report.tables:
        yield "Tables in the store"
        for table in report.tables:
            yield (
                f"  {table.name}: {table.rows} x {table.dim} {table.dtype}, "
                f"{bytes_text(table.bytes)}, {count_text(table.lookups, 'lookup')}"
            )
    yield "Graphs"
    for graph in report.graphs:
        yield (
            f"  {graph.file}, {ROLES[graph.role]}: {count_text(graph.nodes, 'node')}, "
            f"{bytes_text(graph.bytes)}"
        )
    if report.cut:
        yield "Lookups that were cut"
        for lookup in report.cut:
            yield f"  {lookup.table}: ids from {lookup.ids}"
    if report.left:
        yield "Lookups left in the graph"
        for lookup in report.left:
            yield f"  {lookup.table} ({lookup.rows} x {lookup.dim}) at {lookup.node}:"
            yield f"    {lookup.reason}"
    if report.notes:
        yield "Notes"
        for note in report.notes:
            yield f"  {note}"
