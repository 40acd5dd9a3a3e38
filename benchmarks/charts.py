"""Line charts as SVG, without a library: panels side by side over one axis."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Line", "Panel", "draw"]

_WIDTH: Final = 420
_HEIGHT: Final = 300
_LEFT: Final = 60
_RIGHT: Final = 16
_TOP: Final = 36
_BOTTOM: Final = 48
_COLOURS: Final = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line; dashed where it is no measurement.

    Attributes:
        name: in the legend.
        points: `(x, y)`, rising x.
        dashed: for bounds and ideals.
    """

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram; both axes begin at 0.

    Attributes:
        title: above it.
        x: words below the horizontal axis.
        y: words above the vertical axis.
        lines: at least one point in all.
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]


def draw(panels: Sequence[Panel]) -> str:
    """Return the panels, from left to right, as one SVG document."""
    width = _WIDTH * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{_HEIGHT}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * _WIDTH} 0)">')
        parts += _panel(panel)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    points = [point for line in panel.lines for point in line.points]
    if not points:
        raise ValueError(f"panel {panel.title!r}: expected at least one point")
    x_step, x_end = _scale(max(x for x, _ in points))
    y_step, y_end = _scale(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        right, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + x / x_end * right, _HEIGHT - _BOTTOM - y / y_end * down

    parts = [_text(_WIDTH / 2, 16, panel.title, "middle", bold=True)]
    for tick in _ticks(x_step, x_end):
        x, _ = place(tick, 0)
        parts.append(_line((x, _TOP), (x, _HEIGHT - _BOTTOM), "#ddd"))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 15, f"{tick:g}", "middle"))
    for tick in _ticks(y_step, y_end):
        _, y = place(0, tick)
        parts.append(_line((_LEFT, y), (_WIDTH - _RIGHT, y), "#ddd"))
        parts.append(_text(_LEFT - 6, y + 4, f"{tick:,g}", "end"))
    parts.append(_text(_WIDTH / 2, _HEIGHT - 12, panel.x, "middle"))
    parts.append(_text(_LEFT, _TOP - 6, panel.y, "start"))
    for number, line in enumerate(panel.lines):
        colour = "#777" if line.dashed else _COLOURS[number % len(_COLOURS)]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in line.points)
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{path}"/>'
        )
        if not line.dashed:
            for at_x, at_y in (place(x, y) for x, y in line.points):
                parts.append(f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="3" fill="{colour}"/>')
        at = _TOP + 14 + 15 * number
        parts.append(_line((_LEFT + 8, at - 4), (_LEFT + 28, at - 4), colour, dash))
        parts.append(_text(_LEFT + 33, at, line.name, "start"))
    return parts


def _scale(largest: float) -> tuple[float, float]:
    """Distance of ticks, 1, 2 or 5 times a power of ten, and the first tick not below `largest`."""
    if largest <= 0:
        return 1.0, 1.0
    power = 10.0 ** math.floor(math.log10(largest / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 6 >= largest)
    return step, step * math.ceil(largest / step - 1e-9)


def _ticks(step: float, end: float) -> list[float]:
    return [step * number for number in range(round(end / step) + 1)]


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{html.escape(text)}</text>'
    )


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, dash: str = "") -> str:
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{colour}"{dash}/>'
    )
