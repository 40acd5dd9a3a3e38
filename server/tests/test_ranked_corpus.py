"""Real models ranked by features of every input: the scores are those of their export."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_testing.event_loops import on_loop
from anabranch_testing.groups import Counts, MakeGroup, open_groups
from anabranch_testing.ranked_versions import RankedRepository, built, rank
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

TOLERANCE: Final = 1e-5
FIXED: Final = {"own_fixed_batch_ts17", "own_user_broadcast_dynamo18"}
"""Axis 0 of an input counts no rows."""

SEVERAL: Final = {"deepctr_torch_esmm_dynamo18", "torch_rechub_mmoe_ts17"}
"""Two numbers a row in one output."""

MODELS = {model.name: model for model in tree_models()}

Array = NDArray[Any]


@pytest.fixture
def make_group() -> Iterator[MakeGroup]:
    with open_groups(OrtCpuBackend(), Counts()) as make:
        yield make


def features_of(spec: TensorSpec, array: Array) -> tuple[list[str], dict[str, Any]]:
    """Return features that fill an input, in YAML, and the values that make `array` of it."""
    name, inner = spec.name, array.shape[1:]
    kind = "int64" if array.dtype.kind == "i" else "float32"
    start = f"name: {name}, side: candidate, type: {kind}"
    if len(inner) == 1 and kind == "int64" and inner != (1,):
        width = inner[0]
        return [f"{{{start}, ragged: {{max_length: {width}, pad_to: {width}}}}}"], {
            name: array.tolist()
        }
    if len(inner) == 1 and inner != (1,):  # packed: ids as whole numbers beside others
        lines, values = [], {}
        for column in range(inner[0]):
            numbers = array[:, column]
            own = f"{name} {column}"
            is_id = bool(np.all(numbers == np.trunc(numbers)))
            values[own] = [int(one) for one in numbers] if is_id else numbers.tolist()
            lines.append(
                f"{{name: {own}, side: candidate, type: {'int64' if is_id else 'float32'}, "
                f"input: {{name: {name}, columns: [{column}, {column + 1}]}}}}"
            )
        return lines, values
    shape = f", shape: {list(inner)}" if len(inner) > 1 else ""
    flat = array.reshape(len(array), -1) if len(inner) > 1 else array.reshape(len(array))
    return [f"{{{start}{shape}}}"], {name: flat.tolist()}


def write(repository: RankedRepository, model: CorpusModel) -> dict[str, Any]:
    """Write the model with a ranking; return the candidates of its first batch."""
    signature = read_signature(model.folder / "model.onnx")
    batch = model.batches()[0]
    lines, candidates = ["{name: the id, side: candidate, type: int64}"], {}
    rows = 0
    for spec in signature.inputs:
        own, values = features_of(spec, batch[spec.name])
        lines += own
        candidates.update(values)
        rows = max(rows, len(batch[spec.name]))
    repository.folder.mkdir(parents=True)
    shutil.copy(model.folder / "model.onnx", repository.folder)
    (repository.folder / "model.yaml").write_text(
        "features:\n"
        + "".join(f"  - {line}\n" for line in lines)
        + f"ranking: {{id: the id, score: {{output: {signature.outputs[0].name}}}}}\n"
    )
    return {"the id": list(range(rows)), **candidates}


async def check(root: Path, make_group: MakeGroup, model: CorpusModel) -> None:
    repository = RankedRepository(root)
    candidates = write(repository, model)

    found = rank(await built(make_group(), repository.told()), {}, candidates)

    (expected,) = list(model.expected()[0].values())[:1]
    numbers = expected.reshape(len(expected))
    np.testing.assert_allclose(found.scores, numbers[found.positions], rtol=0, atol=TOLERANCE)
    assert sorted(found.positions.tolist()) == list(range(len(numbers)))
    assert np.all(np.diff(found.scores) <= 0)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - FIXED - SEVERAL))
@on_loop
async def test_candidates_have_the_scores_of_their_rows(
    tmp_path: Path, make_group: MakeGroup, name: str
) -> None:
    await check(tmp_path, make_group, MODELS[name])


@pytest.mark.parametrize("name", sorted(FIXED))
def test_inputs_that_count_no_rows_cannot_be_filled(tmp_path: Path, name: str) -> None:
    repository = RankedRepository(tmp_path)
    write(repository, MODELS[name])
    with pytest.raises(InvalidInput, match=r"ranking: input '\w+': axis 0 does not count rows"):
        repository.prepare()


@pytest.mark.parametrize("name", sorted(SEVERAL))
def test_several_numbers_are_no_score(tmp_path: Path, name: str) -> None:
    repository = RankedRepository(tmp_path)
    write(repository, MODELS[name])
    with pytest.raises(InvalidInput, match=r"ranking\.score: output '\w+' is FP32 .*\[N\] or \[N"):
        repository.prepare()


@pytest.mark.soak
@on_loop
async def test_every_model_of_the_corpus_ranks_or_says_why_not(
    tmp_path: Path, make_group: MakeGroup
) -> None:
    models = corpus_models()
    refused: dict[str, str] = {}
    for model in models:
        try:
            await check(tmp_path / model.name, make_group, model)
        except InvalidInput as error:
            refused[model.name] = error.message
    assert {text for text in refused.values() if not text.startswith("model.yaml: ")} == set()
    assert not models or len(models) - len(refused) >= 50, refused
