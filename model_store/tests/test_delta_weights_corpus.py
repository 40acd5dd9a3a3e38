"""New weights of real models give what a version gives that was published with them, to the bit."""

import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_model_store.deltas.weight_places import WeightPlace, WeightPlaces
from anabranch_model_store.preparation import PreparedVersion
from anabranch_testing.corpus import CorpusModel, corpus_models, is_required, tree_models
from anabranch_testing.delta_targets import Arrays, DeltaShop, answers, patched, row_changes

ALL: Final = corpus_models() or tree_models()
MODELS: Final = [model for model in ALL if (model.folder / "deltas" / "d2.npz").is_file()]
EVERY: Final = tree_models()
YAML: Final = {"all tables cut": "optimize: {min_table_bytes: 0}\n", "as it comes": ""}
MAX_DIFF: Final = 1e-5


def test_models_with_deltas_are_there() -> None:
    if not MODELS and not is_required("corpus"):
        pytest.skip("no corpus beside the checkout")
    assert len(MODELS) >= 1


@pytest.mark.parametrize("yaml", YAML.values(), ids=YAML)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_deltas_give_the_answers_of_new_versions(
    model: CorpusModel, yaml: str, tmp_path: Path
) -> None:
    shop = DeltaShop(tmp_path)
    target = published(shop, model.folder / "model.onnx", yaml)
    expected = loaded(model.folder / "deltas" / "expected.npz")
    whole = originals(model.folder / "model.onnx")

    for version, file in ((2, "d2.npz"), (3, "d3.npz")):
        delta = loaded(model.folder / "deltas" / file)
        tensors = {k.removeprefix("full."): a for k, a in delta.items() if k.startswith("full.")}
        rows = {k.removeprefix("rows."): a for k, a in delta.items() if k.startswith("rows.")}
        for name, keys in rows.items():
            whole[name] = whole[name].copy()
            whole[name][keys] = delta[f"values.{name}"]
        whole |= tensors
        made, target = shop.apply(
            target,
            tensors,
            {name: [row_changes(keys, delta[f"values.{name}"])] for name, keys in rows.items()},
        )
        assert made.note == ""
        fresh = republished(shop, version, model.folder / "model.onnx", yaml, whole, target)

        found = answers(made.model, segment(fresh), model.batches())
        assert_same(found, answers(fresh.model, segment(fresh), model.batches()))
        for number, outputs in enumerate(found):
            for name, array in outputs.items():
                answer = expected[f"v{version}.b{number}.{name}"]
                assert np.abs(array - answer).max(initial=0) <= MAX_DIFF, (version, name)


@pytest.mark.parametrize(
    ("model", "yaml"),
    [(model, list(YAML.values())[number % 2]) for number, model in enumerate(EVERY)],
    ids=lambda one: one.name if isinstance(one, CorpusModel) else "",
)
def test_every_weight_can_be_brought_anew(model: CorpusModel, yaml: str, tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    target = published(shop, model.folder / "model.onnx", yaml)
    whole = originals(model.folder / "model.onnx")
    rng = np.random.default_rng(7)
    named = {
        name: place
        for name, place in WeightPlaces.of(target).places.items()
        if whole[name].size > 1  # a number alone may be an exponent
    }
    copies = {one.name for place in named.values() for one in place.graph if one.name != place.name}
    new = {
        name: (whole[name] * rng.uniform(0.9, 1.1, whole[name].shape)).astype(whole[name].dtype)
        for name in named
        if name not in copies
    }
    assert new

    made, target = shop.apply(target, new)

    fresh = republished(shop, 2, model.folder / "model.onnx", yaml, with_copies(new, named), target)
    assert_same(
        answers(made.model, segment(fresh), model.batches()),
        answers(fresh.model, segment(fresh), model.batches()),
    )


def published(shop: DeltaShop, path: Path, yaml: str) -> DeltaTarget:
    shutil.copyfile(path, shop.folder() / "model.onnx")
    (shop.folder() / "model.yaml").write_text(yaml or "description: as it comes\n")
    return shop.target()


def republished(
    shop: DeltaShop, version: int, path: Path, yaml: str, weights: Arrays, target: DeltaTarget
) -> PreparedVersion:
    """Publish a version with other weights, and prepare it."""
    patched(path, shop.folder(version) / "model.onnx", weights)
    (shop.folder(version) / "model.yaml").write_text(yaml or "description: as it comes\n")
    fresh = shop.prepare(version)
    assert (fresh.model.cut is None) == (target.model.cut is None)
    return fresh


def with_copies(weights: Arrays, places: dict[str, WeightPlace]) -> Arrays:
    """Return weights and what the exporter made of them."""
    found = dict(weights)
    for name, array in weights.items():
        for place in places[name].graph:
            found[place.name] = array.T if place.transform == "transpose" else array
    return found


def originals(path: Path) -> Arrays:
    model = onnx.load(path)
    return {
        one.name: array
        for one in model.graph.initializer
        if (array := onnx.numpy_helper.to_array(one)).dtype.kind == "f"
    }


def segment(prepared: PreparedVersion) -> Path | None:
    return None if prepared.store is None else prepared.store.segment


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])


def loaded(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
