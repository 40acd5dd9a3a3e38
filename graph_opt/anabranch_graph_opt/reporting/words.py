"""How reports write numbers and places, alike in all of their forms."""

from html import escape
from typing import Final

from anabranch_graph_opt.reporting.report import GraphRole, Report, ReportedInput

__all__ = [
    "ROLES",
    "bytes_text",
    "count_text",
    "headline",
    "input_text",
    "marked",
    "parity_text",
    "plain",
]

ROLES: Final[dict[GraphRole, str]] = {
    "whole": "whole graph, as exported",
    "prelude": "prelude: makes ids",
    "user": "user graph: once per user",
    "dense": "dense graph: once per row",
}
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def bytes_text(count: int) -> str:
    """Return a size as people read it: `12 bytes`, `3.5 MiB`."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{count} bytes" if not unit else f"{size:.1f} {_UNITS[unit]}"


def count_text(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 lookup`, `3 lookups`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def headline(report: Report) -> str:
    """Return the outcome in one sentence."""
    if not report.lookups:
        return "The graph holds no lookups: it stays as it is."
    if not report.cut:
        return f"None of {count_text(len(report.lookups), 'lookup')} was cut."
    size = bytes_text(sum(table.bytes for table in report.tables))
    return (
        f"{len(report.cut)} of {count_text(len(report.lookups), 'lookup')} cut: "
        f"{count_text(len(report.tables), 'table')} with {size} in the store."
    )


def parity_text(report: Report) -> str:
    """Return what the comparison gave in one sentence."""
    parity = report.parity
    if not parity.cases:
        return "Nothing was changed, so nothing had to be compared."
    refused = f", {parity.refused} of them refused by both" if parity.refused else ""
    return (
        f"Compared with the original on {count_text(parity.cases, 'batch', 'batches')}{refused}: "
        f"numbers differ by at most {parity.max_abs_diff:.3g} (budget "
        f"{parity.budget_max_abs_diff:.3g}), {parity.rank_agreement:.2%} of the pairs of rows keep "
        f"their order (budget {parity.budget_rank_agreement:.2%})."
    )


def input_text(one: ReportedInput) -> str:
    """Return an input with type and shape."""
    sizes = ", ".join("any" if size == -1 else str(size) for size in one.shape)
    return f"{one.name} {one.datatype} [{sizes}]"


def plain(text: str) -> str:
    """Return a text without characters that steer what shows it: names come from a model."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def marked(text: str) -> str:
    """Return a text as it stands in HTML and SVG, in attributes too."""
    return escape(plain(text))
