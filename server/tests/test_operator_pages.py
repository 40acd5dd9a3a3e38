"""The pages that people read say what the code does."""

import re
from pathlib import Path

import pytest

from anabranch_server.commands.serve import NOT_SETTINGS
from anabranch_server.metrics import METRICS
from anabranch_server.settings import SETTINGS
from anabranch_server.support import NOT_SUPPORTED, WITHOUT_EFFECT

DOCS = Path(__file__).parents[2] / "docs"
SERVER = Path(__file__).parents[1] / "anabranch_server"
SETTINGS_PAGE = (DOCS / "settings.md").read_text()
OPERATIONS_PAGE = (DOCS / "operations.md").read_text()

# Defaults that depend on the machine stand in words.
IN_WORDS = {"models": "all", "cache_dir": "see below", "state_dir": "see below"}
IN_WORDS["run_dir"] = "see below"


def rows(page: str) -> dict[str, list[str]]:
    """Return first cell -> cells of every table row that begins with code."""
    found = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[cells[0].strip("`")] = cells
    return found


def section(heading: str) -> str:
    """Return one section of the settings page."""
    return SETTINGS_PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_every_setting_has_a_row_and_every_row_is_a_setting() -> None:
    assert set(rows(SETTINGS_PAGE)) == set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_is_the_one_in_code(name: str) -> None:
    default = SETTINGS[name]
    shown = rows(SETTINGS_PAGE)[name][1].strip("`")
    if default is None:
        assert shown == IN_WORDS.get(name, "none")
    else:
        assert shown == (str(default).lower() if isinstance(default, bool) else str(default))


def test_flags_are_marked() -> None:
    source = (SERVER / "commands" / "serve.py").read_text()
    flags = set(re.findall(r"^    (\w+): Annotated\[", source, re.MULTILINE)) - NOT_SETTINGS
    marked = {name for name, cells in rows(section("Top level")).items() if cells[2] == "yes"}
    assert marked == flags - {"poll_s"}


def test_what_is_not_there_yet_is_told_apart() -> None:
    refused = set(rows(section("Not supported yet")))
    assert refused == {name for name in NOT_SUPPORTED if "." in name}
    assert set(rows(section("Without effect in this release"))) == set(WITHOUT_EFFECT)


def test_every_metric_is_listed_with_its_labels() -> None:
    table = OPERATIONS_PAGE.split("## Metrics")[1]
    listed = {}
    for line in table.splitlines():
        names = re.findall(r"`((?:anabranch|process)_\w+)`", line.partition(" | ")[0])
        for name in names if line.startswith("| `") else ():
            listed[name] = line.strip("|").split("|")[-1].strip()
    assert listed == {name: ", ".join(metric.labels) for name, metric in METRICS.items()}


def test_examples_name_metrics_that_exist() -> None:
    code = OPERATIONS_PAGE.split("```promql")[1].split("```")[0]
    for name in re.findall(r"anabranch_\w+", code):
        assert re.sub(r"_(bucket|sum|count)$", "", name) in METRICS, name


def test_every_event_in_code_is_explained() -> None:
    roots = [SERVER, *(SERVER.parents[1] / name for name in ("runtime", "model_store"))]
    sources = [file.read_text() for root in roots for file in root.rglob("*.py")]
    events = {event for text in sources for event in re.findall(r'"event": "(\w+)"', text)}
    explained = set(re.findall(r"`(\w+)`", OPERATIONS_PAGE.split("## Logs")[1].split("## ")[0]))
    assert events <= explained, events - explained
