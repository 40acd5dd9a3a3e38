import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch_runtime.catalog import Catalog, ServingState
from anabranch_testing.catalogs import OwnCatalog, OwnEpochs
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import served_version
from anabranch_wire.errors import NotFound, Unavailable


@pytest.fixture
def catalog(tmp_path: Path) -> OwnCatalog:
    model = scale_model(tmp_path)
    catalog = OwnCatalog()
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
def test_selectors(catalog: OwnCatalog, selector: str, version: int) -> None:
    assert catalog.resolve("ctr", selector).snapshot.version == version


@pytest.mark.parametrize("selector", ["43", "042", "nobody", "Stable", "4 2", "-1", "../42"])
def test_unknown_selectors_are_not_found(catalog: OwnCatalog, selector: str) -> None:
    with pytest.raises(NotFound):
        catalog.resolve("ctr", selector)


def test_a_label_on_a_version_that_is_not_loaded_is_unavailable(catalog: OwnCatalog) -> None:
    with pytest.raises(Unavailable, match="43"):
        catalog.resolve("ctr", "canary")


def test_a_known_model_without_a_version_is_unavailable(catalog: OwnCatalog) -> None:
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
    catalog = OwnCatalog()
    catalog.publish("ctr", ServingState(versions, **state))

    with pytest.raises(Unavailable) as caught:
        catalog.resolve("ctr")

    assert caught.value.message == f"model 'ctr': {said}"


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    catalog = OwnCatalog()
    with pytest.raises(NotFound, match=r"model 'x' is not known; known: none$"):
        catalog.resolve("x")
    for index in range(30):
        catalog.publish(f"m{index:02}", ServingState({}))

    with pytest.raises(NotFound, match=r"known: m00, m01, .*, m19 and 10 more$"):
        catalog.state("m30")


def test_what_is_not_known_may_still_come_until_the_catalog_is_complete(tmp_path: Path) -> None:
    epochs = OwnEpochs()
    early = Catalog(epochs, is_complete=False)
    for ask in (early.state, early.resolve):
        with pytest.raises(Unavailable, match="model 'ctr' is not loaded yet: the server is start"):
            ask("ctr")

    early.hold("ctr", 0, 1, ServingState({1: served_version(scale_model(tmp_path), 1)}, default=1))
    epochs.store(0, 1)
    assert early.resolve("ctr").snapshot.version == 1
    early.complete()

    with pytest.raises(NotFound, match="model 'other' is not known; known: ctr"):
        early.resolve("other")


def test_a_model_that_could_not_be_prepared_is_not_said_to_be_missing(tmp_path: Path) -> None:
    catalog = OwnCatalog()
    catalog.miss("ctr")
    for ask in (catalog.state, catalog.resolve):
        with pytest.raises(Unavailable, match="model 'ctr' could not be loaded here"):
            ask("ctr")

    catalog.publish("ctr", ServingState({1: served_version(scale_model(tmp_path), 1)}, default=1))
    assert catalog.resolve("ctr").snapshot.version == 1
    catalog.publish("ctr", None)

    with pytest.raises(NotFound):
        catalog.resolve("ctr")


def test_readiness_needs_every_required_model(catalog: OwnCatalog) -> None:
    assert not catalog.is_ready()
    catalog.publish("broken", ServingState({}, required=False))
    assert catalog.is_ready()
    catalog.publish("broken", None)
    catalog.publish("ctr", None)
    assert not catalog.is_ready()
    assert catalog.is_ready(allow_empty=True)


def test_a_reader_keeps_the_mapping_it_has(catalog: OwnCatalog) -> None:
    states = catalog.states
    catalog.publish("ctr", None)

    assert "ctr" in states
    assert "ctr" not in catalog.states


def test_a_prepared_state_is_seen_when_the_word_names_it(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    epochs = OwnEpochs()
    catalog = Catalog(epochs)
    catalog.hold("ctr", 7, 1, ServingState({1: served_version(model, 1)}, default=1))

    assert not catalog.knows("ctr")
    with pytest.raises(NotFound, match="known: none"):
        catalog.resolve("ctr")
    epochs.store(7, 1)
    assert catalog.knows("ctr")
    assert catalog.resolve("ctr").snapshot.version == 1

    catalog.hold("ctr", 7, 2, ServingState({2: served_version(model, 2)}, default=2))
    assert catalog.resolve("ctr").snapshot.version == 1
    epochs.store(7, 2)
    assert catalog.resolve("ctr").snapshot.version == 2
    assert catalog.sweep("ctr") == 2
    assert catalog.resolve("ctr").snapshot.version == 2


def test_an_epoch_that_was_forgotten_never_answers(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    epochs = OwnEpochs()
    catalog = Catalog(epochs)
    catalog.hold("ctr", 0, 1, ServingState({1: served_version(model, 1)}, default=1))
    epochs.store(0, 1)
    catalog.hold("ctr", 0, 2, ServingState({2: served_version(model, 2)}, default=2))

    catalog.forget("ctr", 2)
    catalog.hold("ctr", 0, 3, ServingState({3: served_version(model, 3)}, default=3))
    epochs.store(0, 3)

    assert catalog.resolve("ctr").snapshot.version == 3
    assert catalog.sweep("ctr") == 3
    catalog.forget("nothing", 1)
    assert catalog.sweep("nothing") == 0


def test_a_sweep_lets_go_of_what_is_older_and_of_nothing_else(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    epochs = OwnEpochs()
    catalog = Catalog(epochs)
    watched = []
    for epoch in (1, 2, 3):
        state = ServingState({epoch: served_version(model, epoch)}, default=epoch)
        watched.append(weakref.ref(state))
        catalog.hold("ctr", 0, epoch, state)
        del state
    epochs.store(0, 2)

    assert catalog.sweep("ctr") == 2
    gc.collect()
    assert [ref() is None for ref in watched] == [True, False, False]


def test_a_model_that_is_gone_may_come_back_with_another_slot(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    epochs = OwnEpochs()
    catalog = Catalog(epochs)
    catalog.hold("ctr", 0, 1, ServingState({}))
    with pytest.raises(ValueError, match="slot 0, not 1"):
        catalog.hold("ctr", 1, 2, ServingState({}))
    catalog.hold("ctr", 0, 2, None)
    epochs.store(0, 2)
    assert not catalog.knows("ctr")
    catalog.sweep("ctr")

    catalog.hold("ctr", 1, 1, ServingState({5: served_version(model, 5)}, default=5))
    epochs.store(1, 1)

    assert catalog.resolve("ctr").snapshot.version == 5


def test_readers_beside_switches_always_find_the_current_version(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    catalog = OwnCatalog()
    catalog.publish("ctr", ServingState({1: served_version(model, 1)}, default=1))
    ended = threading.Event()
    faults: list[BaseException | str] = []

    def read() -> None:
        newest = 0
        try:
            while not ended.is_set():
                version = catalog.resolve("ctr").snapshot.version
                if version < newest:
                    faults.append(f"{version} after {newest}")
                newest = version
        except BaseException as fault:
            faults.append(fault)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(2, 2_000):
        catalog.publish(
            "ctr", ServingState({number: served_version(model, number)}, default=number)
        )
    ended.set()
    for reader in readers:
        reader.join()

    assert faults == []
    assert catalog.resolve("ctr").snapshot.version == 1_999


class StepsBetween(OwnEpochs):
    """Runs `step` between a reader's look at what is prepared and its look at the word."""

    def __init__(self) -> None:
        super().__init__()
        self.step: Callable[[], None] | None = None

    def load(self, index: int, /) -> int:
        step, self.step = self.step, None
        if step is not None:
            step()
        return super().load(index)


def test_a_switch_and_a_sweep_in_the_middle_of_a_look_up(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    epochs = StepsBetween()
    catalog = Catalog(epochs)
    catalog.hold("ctr", 0, 1, ServingState({1: served_version(model, 1)}, default=1))
    epochs.store(0, 1)

    def switch() -> None:
        catalog.hold("ctr", 0, 2, ServingState({2: served_version(model, 2)}, default=2))
        epochs.store(0, 2)
        catalog.sweep("ctr")

    epochs.step = switch

    assert catalog.resolve("ctr").snapshot.version == 2
