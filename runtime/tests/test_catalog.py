from pathlib import Path
from typing import Any

import pytest

from anabranch_runtime.catalog import Catalog, ServingState
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import served_version
from anabranch_wire.errors import NotFound, Unavailable


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    model = scale_model(tmp_path)
    catalog = Catalog()
    catalog.publish(
        "ctr",
        ServingState(
            {41: served_version(model, 41), 42: served_version(model, 42)},
            labels={"stable": 41, "canary": 43},
            default=42,
        ),
    )
    catalog.publish("broken", ServingState({}, labels={"stable": 1}))
    return catalog


@pytest.mark.parametrize(
    ("selector", "version"), [("", 42), ("41", 41), ("42", 42), ("stable", 41)]
)
def test_selectors(catalog: Catalog, selector: str, version: int) -> None:
    assert catalog.resolve("ctr", selector).snapshot.version == version


@pytest.mark.parametrize("selector", ["43", "042", "nobody", "Stable", "4 2", "-1", "../42"])
def test_unknown_selectors_are_not_found(catalog: Catalog, selector: str) -> None:
    with pytest.raises(NotFound):
        catalog.resolve("ctr", selector)


def test_a_label_on_a_version_that_is_not_loaded_is_unavailable(catalog: Catalog) -> None:
    with pytest.raises(Unavailable, match="43"):
        catalog.resolve("ctr", "canary")


def test_a_known_model_without_a_version_is_unavailable(catalog: Catalog) -> None:
    with pytest.raises(Unavailable):
        catalog.resolve("broken")
    with pytest.raises(NotFound):
        catalog.resolve("nothing")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"versions": ()}, "no version is loaded"),
        ({"versions": (), "default_label": "stable"}, "no version is loaded"),
        (
            {"versions": (1, 2), "labels": {"stable": 42}, "default_label": "stable"},
            "default label 'stable' names version 42, which is not loaded; loaded: 1, 2",
        ),
        (
            {"versions": (1,), "labels": {"canary": 1}, "default_label": "stable"},
            "default label 'stable' names no version; loaded: 1",
        ),
        ({"versions": (1,)}, "no version answers by default; loaded: 1"),
    ],
)
def test_what_keeps_a_model_from_answering_is_said(
    tmp_path: Path, state: dict[str, Any], said: str
) -> None:
    model = scale_model(tmp_path)
    versions = {number: served_version(model, number) for number in state.pop("versions")}
    catalog = Catalog()
    catalog.publish("ctr", ServingState(versions, **state))

    with pytest.raises(Unavailable) as caught:
        catalog.resolve("ctr")

    assert caught.value.message == f"model 'ctr': {said}"


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    catalog = Catalog()
    with pytest.raises(NotFound, match=r"model 'x' is not known; known: none$"):
        catalog.resolve("x")
    for index in range(30):
        catalog.publish(f"m{index:02}", ServingState({}))

    with pytest.raises(NotFound, match=r"known: m00, m01, .*, m19 and 10 more$"):
        catalog.state("m30")


def test_readiness_needs_every_required_model(catalog: Catalog) -> None:
    assert not catalog.is_ready()
    catalog.publish("broken", ServingState({}, required=False))
    assert catalog.is_ready()
    catalog.publish("broken", None)
    catalog.publish("ctr", None)
    assert not catalog.is_ready()
    assert catalog.is_ready(allow_empty=True)


def test_a_reader_keeps_the_mapping_it_has(catalog: Catalog) -> None:
    states = catalog.states
    catalog.publish("ctr", None)

    assert "ctr" in states
    assert "ctr" not in catalog.states
