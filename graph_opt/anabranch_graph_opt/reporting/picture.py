"""The picture of a report: what went where, as one SVG that stands for itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch_graph_opt.reporting.report import GraphRole, Report, ReportedGraph
from anabranch_graph_opt.reporting.words import ROLES, bytes_text, count_text, input_text, marked

__all__ = ["picture"]

_LINE: Final = 18
_PAD: Final = 12
_WIDTH: Final = 230
_GAP: Final = 100
_SPACE: Final = 24
_LANE: Final = 14
_SHOWN: Final = 10
"""Names of a list; the others are counted."""
_LETTERS: Final = 31


@dataclass(frozen=True, slots=True)
class _Box:
    """A box of the picture.

    Attributes:
        kind: class for its colour.
        column: from the left.
        top: where it begins.
        title: its first line.
        lines: below that.
    """

    kind: str
    column: int
    top: int
    title: str
    lines: tuple[str, ...]

    @property
    def left(self) -> int:
        return _PAD + self.column * (_WIDTH + _GAP)

    @property
    def height(self) -> int:
        return 2 * _PAD + _LINE * (1 + len(self.lines))

    @property
    def bottom(self) -> int:
        return self.top + self.height


def picture(report: Report) -> str:
    """Return an `<svg>` element with inputs, prelude, store and graphs, and what flows between."""
    boxes = _boxes(report)
    flows = list(_flows(report, boxes))
    far = [flow for flow in flows if boxes[flow[1]].column - boxes[flow[0]].column > 1]
    floor = max(box.bottom for box in boxes.values()) + _LANE
    width = max(box.left for box in boxes.values()) + _WIDTH + _PAD
    height = floor + _LANE * len(far)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="What went where">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        *(
            _near(boxes[begin], boxes[end], word)
            for begin, end, word in flows
            if (begin, end, word) not in far
        ),
        *(
            _below(boxes[begin], boxes[end], word, lane, floor)
            for lane, (begin, end, word) in enumerate(far)
        ),
        *(_drawn(box) for box in boxes.values()),
        "</svg>",
    ]
    return "\n".join(parts)


def _boxes(report: Report) -> dict[str, _Box]:
    graphs = {graph.role: graph for graph in report.graphs}
    boxes = {
        "inputs": _Box(
            "inputs", 0, _PAD, "inputs", _shown([input_text(one) for one in report.inputs])
        )
    }
    column = 1
    if "prelude" in graphs:
        boxes["prelude"] = _graph_box(graphs["prelude"], column, _PAD)
        column += 1
    if report.tables:
        size = bytes_text(sum(table.bytes for table in report.tables))
        names = [f"{one.rows} x {one.dim} {one.name}" for one in report.tables]
        title = f"store: {count_text(len(names), 'table')}, {size}"
        boxes["store"] = _Box("store", column, _PAD, title, _shown(names))
        column += 1
    top = _PAD
    if "user" in graphs:
        boxes["user"] = _graph_box(graphs["user"], column, top)
        top = boxes["user"].bottom + 2 * _SPACE
    role: GraphRole = "dense" if "dense" in graphs else "whole"
    if role in graphs:
        boxes["dense"] = _graph_box(graphs[role], column, top)
        outputs = graphs[role].outputs
        boxes["outputs"] = _Box("inputs", column + 1, top, "outputs", _shown(outputs))
    return boxes


def _graph_box(graph: ReportedGraph, column: int, top: int) -> _Box:
    title, _, words = ROLES[graph.role].partition(": ")
    lines = (words, graph.file, count_text(graph.nodes, "node"), bytes_text(graph.bytes))
    return _Box(graph.role, column, top, title, tuple(line for line in lines if line))


def _shown(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) <= _SHOWN:
        return tuple(names)
    return (*names[: _SHOWN - 1], f"and {len(names) - _SHOWN + 1} more")


def _flows(report: Report, boxes: dict[str, _Box]) -> Iterator[tuple[str, str, str]]:
    """Yield which boxes are joined by an arrow, and what it says."""
    places = {place for one in report.inputs for place in one.goes}
    if "lookups" in places:
        yield "inputs", "store", "ids"
    for place in ("prelude", "user", "dense"):
        if place in places and place in boxes:
            yield "inputs", place, ""
    if "prelude" in boxes and "store" in boxes:
        yield "prelude", "store", "ids"
    fed: dict[str, tuple[str, ...]] = {graph.role: graph.inputs for graph in report.graphs}
    for place in ("user", "dense"):
        columns = [one.columns for one in report.buffers if one.name in fed.get(place, ())]
        if columns:
            yield "store", place, f"{sum(columns)} columns"
    if "user" in boxes:
        yield "user", "dense", "by user"
    if "outputs" in boxes:
        yield "dense", "outputs", ""


def _near(begin: _Box, end: _Box, word: str) -> str:
    """Return an arrow to the next column, or to the box below."""
    if begin.column == end.column:
        x = begin.left + _WIDTH // 2
        line = f'<path class="flow" d="M{x} {begin.bottom} L{x} {end.top}"/>'
        return line + _word(x + 8, (begin.bottom + end.top) // 2 + 4, word, "start")
    x1, y1 = begin.left + _WIDTH, begin.top + min(begin.height, end.height) // 2
    x2, y2 = end.left, end.top + min(begin.height, end.height) // 2
    middle = (x1 + x2) // 2
    path = f'<path class="flow" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>'
    return path + _word(middle, min(y1, y2) - 6, word, "middle")


def _below(begin: _Box, end: _Box, word: str, lane: int, floor: int) -> str:
    """Return an arrow that goes below what stands between, in a lane of its own."""
    x1, y = begin.left + 2 * _PAD + _LANE * lane, floor + _LANE * lane
    x2, y2 = end.left - _PAD - _LANE * (lane + 1), end.bottom - _PAD - 4 * lane
    path = f'<path class="flow" d="M{x1} {begin.bottom} V{y} H{x2} V{y2} H{end.left}"/>'
    return path + _word(x2 - 6, y - 4, word, "end")


def _word(x: int, y: int, word: str, anchor: str) -> str:
    return f'<text class="word" x="{x}" y="{y}" text-anchor="{anchor}">{marked(word)}</text>'


def _drawn(box: _Box) -> str:
    parts = [
        f'<rect class="{box.kind}" x="{box.left}" y="{box.top}" width="{_WIDTH}" '
        f'height="{box.height}" rx="8"/>'
    ]
    for number, line in enumerate((box.title, *box.lines)):
        y = box.top + _PAD + _LINE * (number + 1) - 5
        kind = "title" if number == 0 else "line"
        short = line if len(line) <= _LETTERS else f"{line[: _LETTERS - 3]}..."
        parts.append(
            f'<text class="{kind}" x="{box.left + _PAD}" y="{y}">'
            f"<title>{marked(line)}</title>{marked(short)}</text>"
        )
    return "".join(parts)
