"""Ranking of versions: told by a loader, built by a worker; whole, cut, planned, with lookups."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_model_store.store_trials import TrialStore
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.ranking.plans import RankingPlan, VocabularyPlan
from anabranch_server.processes.plans import VersionPlan
from anabranch_testing.event_loops import on_loop
from anabranch_testing.graphs import write_graph
from anabranch_testing.groups import Counts, MakeGroup, open_groups
from anabranch_testing.ranked_versions import RankedRepository, built, rank
from anabranch_wire.errors import AnabranchError, Internal, InvalidInput, NotFound, Unavailable

ITEMS: Final = 500
USERS: Final = 300
GRAPH = """
rank (int64[N, 1] user, int64[N] item, float[N, 2] x) => (float[N, 1] p)
<int64[1] last = {1}>
{
  u = Gather(users, user)
  flat = Squeeze(u, last)
  i = Gather(items, item)
  all = Concat <axis: int = 1> (x, i, flat)
  y = MatMul(all, w)
  p = Sigmoid(y)
}
"""
YAML = """
user_inputs: [user]
optimize: {min_table_bytes: 0, split: SPLIT}
features:
  - {name: user, side: user, type: int64}
  - {name: item, side: candidate, type: string, vocabulary: {VOCABULARY, unknown: 0}}
  - {name: price, side: candidate, type: float32, input: {name: x, columns: [1, 2]}}
  - {name: age, side: user, type: int64, default: 3, input: {name: x, columns: [0, 1]}}
ranking: {id: item, score: {output: p}, routing_key: user}
"""
NAMES = [f"item {number} of a list that is too long for a message" for number in range(ITEMS)]

Array = NDArray[Any]


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {"items": (ITEMS, 4), "users": (USERS, 4), "w": (10, 1)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_version(folder: Path) -> Path:
    path = write_graph(folder, GRAPH)
    model = onnx.load(path)
    for name, array in weights().items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


class Repository(RankedRepository):
    """A model with a vocabulary that is too long for a message."""

    def with_file(self, split: str) -> "Repository":
        write_version(self.folder)
        self.write_meaning(self.folder, split)
        return self

    def write_meaning(self, folder: Path, split: str) -> None:
        (folder / "vocab").mkdir()
        (folder / "vocab" / "items.txt").write_text("\n".join(NAMES))
        text = YAML.replace("SPLIT", split).replace("VOCABULARY", "file: vocab/items.txt")
        (folder / "model.yaml").write_text(text)

    def planned(self) -> "Repository":
        """The same, optimised ahead of time."""
        path = write_version(self.root / "exported")
        self.write_meaning(self.root, "auto")
        request = OptimizeRequest(path, self.folder, self.root / "model.yaml")
        assert optimize_folder(request, OrtModelRunner()).lookups
        return self


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def make_group() -> Iterator[MakeGroup]:
    with open_groups(OrtCpuBackend(), Counts()) as make:
        yield make


def scores(user: int, items: list[int], prices: list[float], age: float) -> Array:
    """What the model gives, in NumPy."""
    tables = weights()
    rows = [
        np.concatenate([[age, price], tables["items"][item], tables["users"][user]])
        for item, price in zip(items, prices, strict=True)
    ]
    found: Array = 1 / (1 + np.exp(-(np.array(rows) @ tables["w"])[:, 0]))
    return found


@pytest.mark.parametrize("form", ["whole", "cut", "planned"])
@on_loop
async def test_what_a_loader_found_ranks_in_a_worker(
    repository: Repository, make_group: MakeGroup, form: str
) -> None:
    if form == "planned":
        repository.planned()
    else:
        repository.with_file("off" if form == "whole" else "auto")
    plan = repository.told()
    assert (plan.cut is not None) == (form != "whole")
    assert plan.ranking is not None
    # Features are those of the original, whatever became of it.
    assert [(one.name, one.shape, one.once) for one in plan.ranking.tensors] == [
        ("user", (1,), True),
        ("item", (), False),
        ("x", (2,), False),
    ]

    served = await built(make_group(), plan)

    items, prices = [7, 499, 0, 250], [0.5, -1.0, 2.0, 0.25]
    found = rank(
        served,
        {"user": 123},
        {"item": [NAMES[7], NAMES[499], "unknown", NAMES[250]], "price": prices},
    )
    expected = scores(123, items, prices, 3.0)
    order = np.argsort(-expected)
    assert found.positions.tolist() == order.tolist()
    np.testing.assert_allclose(found.scores, expected[order], rtol=0, atol=1e-5)


@on_loop
async def test_other_rows_leave_the_ranking(repository: Repository, make_group: MakeGroup) -> None:
    plan = repository.with_file("auto").told()
    assert plan.store is not None
    served = await built(make_group(), plan)
    view = TrialStore(Path(plan.store.segment)).view

    assert served.group.with_rows(served, view).ranking is served.ranking


def vocabulary_of(plan: VersionPlan) -> Path:
    assert plan.ranking is not None
    transform = plan.ranking.features[1].transform
    assert isinstance(transform, VocabularyPlan)
    assert transform.file is not None
    return Path(transform.file)


@on_loop
async def test_a_long_vocabulary_needs_no_repository(
    repository: Repository, make_group: MakeGroup
) -> None:
    plan = repository.with_file("auto").told()
    place = vocabulary_of(plan)
    assert str(place) in plan.files  # so that it stays in the cache
    assert repository.cache in place.parents
    (repository.folder / "vocab" / "items.txt").unlink()

    served = await built(make_group(), plan)

    assert len(rank(served, {"user": 1}, {"item": [NAMES[3]], "price": [1]}).scores) == 1


def without_file(plan: VersionPlan) -> VersionPlan:
    vocabulary_of(plan).unlink()
    return plan


def without_heads(plan: VersionPlan) -> VersionPlan:
    ranking = plan.ranking
    assert isinstance(ranking, RankingPlan)
    return msgspec.structs.replace(plan, ranking=msgspec.structs.replace(ranking, heads=("z",)))


@pytest.mark.parametrize(
    ("broken", "kind", "words"),
    [
        (without_file, Unavailable, "vocabulary 'vocabulary.txt' cannot be read"),
        (without_heads, Internal, "plan of 1: ranking: the graph has no"),
    ],
)
@on_loop
async def test_a_ranking_that_cannot_be_built_fails_the_build(
    repository: Repository,
    make_group: MakeGroup,
    broken: Callable[[VersionPlan], VersionPlan],
    kind: type[AnabranchError],
    words: str,
) -> None:
    plan = broken(repository.with_file("auto").told())
    with pytest.raises(kind, match=words):
        await built(make_group(), plan)


def test_a_ranking_that_does_not_fit_refuses_the_version(repository: Repository) -> None:
    repository.with_file("auto")
    path = repository.folder / "model.yaml"
    path.write_text(path.read_text().replace("columns: [1, 2]", "columns: [2, 3]"))
    with pytest.raises(InvalidInput, match=r"ranking: input 'x': features fill columns up to 3"):
        repository.prepare()


def test_ids_that_no_input_holds_refuse_the_version(repository: Repository) -> None:
    repository.with_file("auto")
    path = repository.folder / "model.yaml"
    hashed = "default: 3, hash: {function: xxh64, num_buckets: 16777218}, input: {name: x"
    path.write_text(path.read_text().replace("default: 3, input: {name: x", hashed))
    words = (
        "model.yaml: ranking: feature 'age': hash.num_buckets 16777218 makes the id 16777217; "
        "input 'x' (FP32) holds ids from -16777216 to 16777216"
    )
    with pytest.raises(InvalidInput, match=f"^{re.escape(words)}$"):
        repository.prepare()


def test_a_ranking_that_does_not_fit_is_not_optimised(repository: Repository) -> None:
    path = write_version(repository.root / "exported")
    repository.write_meaning(repository.root, "auto")
    meaning = repository.root / "model.yaml"
    meaning.write_text(meaning.read_text().replace("columns: [1, 2]", "columns: [2, 3]"))
    with pytest.raises(InvalidInput, match=r"ranking: input 'x': features fill columns up to 3"):
        optimize_folder(OptimizeRequest(path, repository.folder, meaning), OrtModelRunner())
    (repository.root / "vocab" / "items.txt").unlink()
    with pytest.raises(NotFound, match=r"vocab/items\.txt: no such file"):
        optimize_folder(OptimizeRequest(path, repository.folder, meaning), OrtModelRunner())
    assert not repository.folder.exists()


def test_a_version_without_ranking_has_none(repository: Repository) -> None:
    repository.with_file("auto")
    path = repository.folder / "model.yaml"
    path.write_text(path.read_text().partition("ranking:")[0])
    plan = repository.told()
    assert plan.ranking is None
    assert "model.yaml: no door of this release uses features" in plan.notes


def test_a_score_of_as_many_numbers_as_it_happens_to_have_is_found_by_running(
    repository: Repository,
) -> None:
    repository.with_file("auto")
    write_graph(
        repository.folder,
        "open (int64[N, 1] user, int64[N] item, float[N, 2] x) => (float[N, M] p) "
        "<int64[1] last = {1}> { i = Cast <to: int = 1> (item) u = Cast <to: int = 1> (user) "
        "c = Unsqueeze(i, last) p = Concat <axis: int = 1> (x, c, u) }",
    )
    with pytest.raises(InvalidInput, match=r"score: output 'p' has 4 numbers for each row; expec"):
        repository.prepare()
