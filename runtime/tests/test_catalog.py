from pathlib import Path

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
