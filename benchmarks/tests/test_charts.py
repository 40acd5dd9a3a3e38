"""Charts are well-formed, and every point is inside."""

import xml.etree.ElementTree as ElementTree

import pytest

from charts import Line, Panel, draw

SPACE = "{http://www.w3.org/2000/svg}"


def test_points_are_placed_by_their_values() -> None:
    drawn = draw([Panel("a < b", "x", "y", [Line("one", [(0, 0), (1, 50), (2, 100)])])])

    root = ElementTree.fromstring(drawn)
    (line,) = root.iter(f"{SPACE}polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert points == [(60.0, 252.0), (232.0, 144.0), (404.0, 36.0)]
    assert len(list(root.iter(f"{SPACE}circle"))) == 3
    assert "a < b" in [text.text for text in root.iter(f"{SPACE}text")]


def test_panels_stand_side_by_side_and_dashed_lines_have_no_dots() -> None:
    panel = Panel("t", "x", "y", [Line("bound", [(0, 3), (7, 3)], dashed=True)])

    root = ElementTree.fromstring(draw([panel, panel]))
    assert root.attrib["width"] == "840"
    assert not list(root.iter(f"{SPACE}circle"))


@pytest.mark.parametrize("largest", [0.0, 0.003, 1.0, 4.9, 7.0, 26_000.0])
def test_axes_reach_the_largest_value_with_few_ticks(largest: float) -> None:
    drawn = draw([Panel("t", "x", "y", [Line("one", [(1, largest)])])])

    (circle,) = ElementTree.fromstring(drawn).iter(f"{SPACE}circle")
    assert 36.0 <= float(circle.attrib["cy"]) <= 252.0
    assert drawn.count('text-anchor="end"') <= 8


def test_a_panel_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        draw([Panel("t", "x", "y", [])])
