from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

torch = pytest.importorskip("torch", reason="needs PyTorch")

from anabranch_publish import Publisher, publish_version  # noqa: E402
from anabranch_publish.torch import ChangedWeights, Initializer  # noqa: E402
from anabranch_wire.errors import InvalidInput  # noqa: E402


class Model(torch.nn.Module):  # type: ignore[name-defined,misc]  # it need not be installed
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.items = torch.nn.Embedding(50, 4)
        self.tags = torch.nn.EmbeddingBag(20, 4, mode="sum")
        self.norm = torch.nn.BatchNorm1d(8)
        self.out = torch.nn.Linear(8, 1)

    def forward(self, item: Any, tags: Any) -> Any:
        rows = torch.cat([self.items(item), self.tags(tags)], dim=1)
        return self.out(self.norm(rows))


NAMES = {"out.weight": Initializer("onnx::MatMul_1", transposed=True), "out.bias": None}


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    publish_version(tmp_path / "ctr", tmp_path / "m.onnx", version=1)
    return Publisher(tmp_path / "ctr", version=1)


def delta(publisher: Publisher, tmp_path: Path) -> dict[str, object]:
    """Rows of the newest delta by table, and its weights by name."""
    document = publisher.newest()
    assert document is not None
    folder = tmp_path / f"ctr/1/deltas/{document.sequence:08}" / document.attempt
    found: dict[str, object] = {}
    for table in document.tables:
        held = load_file(folder / table.file)
        found[table.name] = dict(zip(held["keys"].tolist(), held["values"].tolist(), strict=True))
    if document.dense is not None:
        found |= load_file(folder / document.dense.file)
    return found


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_deltas_lead_to_the_weights_whatever_the_optimiser(
    publisher: Publisher, tmp_path: Path, optimizer: str
) -> None:
    model = Model()
    changed = ChangedWeights(model, NAMES)
    state = {name: weight.numpy().copy() for name, weight in model.state_dict().items()}
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    assert changed.publish(publisher) is None
    for step in range(3):
        for _ in range(2):
            item, tags = torch.randint(0, 50, (5,)), torch.randint(0, 20, (5, 2))
            steps.zero_grad()
            model(item, tags).square().sum().backward()
            steps.step()
        assert changed.publish(publisher, step=step) == step + 1
        found = delta(publisher, tmp_path)
        assert "out.bias" not in found
        assert "norm.num_batches_tracked" not in found
        for name in ("items.weight", "tags.weight"):
            rows = found[name]
            assert isinstance(rows, dict)
            for key, row in rows.items():
                assert (state[name][key] != np.array(row, np.float32)).any(), "it did change"
                state[name][key] = row
            np.testing.assert_array_equal(state[name], model.state_dict()[name].numpy())
        now = {name: weight.numpy() for name, weight in model.state_dict().items()}
        np.testing.assert_array_equal(found["onnx::MatMul_1"], now["out.weight"].T)
        for name in ("norm.weight", "norm.running_mean", "norm.running_var"):
            np.testing.assert_array_equal(found[name], now[name])
    assert changed.publish(publisher) is None


def test_what_was_not_published_comes_again(publisher: Publisher, tmp_path: Path) -> None:
    model = Model()
    changed = ChangedWeights(model, NAMES)
    with torch.no_grad():
        model.items.weight[7] += 1
    assert changed.add_to(publisher.delta()) == 1
    with torch.no_grad():
        model.items.weight[8] += 1
    changed.commit()  # of row 7, as it was told; not of what came later
    assert changed.publish(publisher) == 1
    assert list(delta(publisher, tmp_path)) == ["items.weight"]
    assert list(delta(publisher, tmp_path)["items.weight"]) == [8]  # type: ignore[call-overload]


def test_bits_are_compared_and_bf16_stays(publisher: Publisher, tmp_path: Path) -> None:
    table = torch.nn.Embedding(4, 2).to(torch.bfloat16)
    with torch.no_grad():
        table.weight.zero_()
    changed = ChangedWeights(table, {"weight": "t"}, keys={"weight": np.array([10, 11, 12, -1])})
    with torch.no_grad():
        table.weight[3, 0] = -0.0
    assert changed.publish(publisher) == 1
    document = publisher.newest()
    assert document is not None
    assert (document.tables[0].name, document.tables[0].dtype) == ("t", "bf16")
    assert document.tables[0].upserts == 1


def test_a_restarted_trainer_says_what_was_published(publisher: Publisher, tmp_path: Path) -> None:
    model = Model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        model.tags.weight[3] = 0
    again = ChangedWeights(model, NAMES, published=before)
    told = []
    assert again.publish(publisher, also=lambda draft: told.append(draft)) == 1
    assert list(delta(publisher, tmp_path)) == ["tags.weight"]
    assert len(told) == 1


def test_what_does_not_fit_is_refused(publisher: Publisher) -> None:
    model = Model()
    with pytest.raises(InvalidInput, match="'none': the module has no such weight"):
        ChangedWeights(model, {"none": "x"})
    with pytest.raises(InvalidInput, match="expected a key for each row of an embedding"):
        ChangedWeights(model, keys={"items.weight": np.arange(3)})
    changed = ChangedWeights(model)
    with torch.no_grad():
        model.items.weight[5, 0] = float("nan")
    with pytest.raises(InvalidInput, match=r"table 'items.weight': the row of key 5 has a NaN"):
        changed.publish(publisher)
    model.items.weight = torch.nn.Parameter(torch.zeros(51, 4))
    with pytest.raises(InvalidInput, match=r"is torch.float32 \[51, 4\], published as .* \[50, 4"):
        changed.publish(publisher)
