"""`anabranch golden make` and `check`, and the examples of docs/golden.md."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch_testing.graphs import write_graph
from anabranch_wire import golden

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
DOCS = Path(__file__).parents[2] / "docs" / "golden.md"

GRAPH = """
rank (int64[N] country, int64[N] item_id) => (float[N] ctr)
<float million = {1000000.0}, float hundred = {100.0}> {
  c = Cast <to: int = 1> (country) i = Cast <to: int = 1> (item_id)
  a = Div (c, million) b = Div (i, hundred) ctr = Add (a, b)
}
"""
YAML = """
user_inputs: [country]
outputs: {ctr: {kind: probability}}
features:
  - {name: country, side: user, type: string, hash: {function: xxh64, seed: 0, num_buckets: 1000}}
  - {name: item_id, side: candidate, type: int64}
ranking: {id: item_id, score: {output: ctr}}
"""
PREDICT = """
def predict(country, item_id):
    return country / 1000000 + item_id / 100
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch_server", "golden", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=SURROUNDINGS,
        cwd=folder,
        check=False,
    )


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def example(name: str) -> str:
    return next(block for block in blocks("python") if block.startswith(f"# {name}\n"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_graph(tmp_path / "models" / "ctr" / "43", GRAPH)
    (tmp_path / "models" / "ctr" / "43" / "model.yaml").write_text(YAML)
    (tmp_path / "shop").mkdir()
    (tmp_path / "train.py").write_text(example("train.py") + PREDICT)
    return tmp_path


VERSION = "models/ctr/43"


def test_the_example_with_numpy_is_recorded_and_checked(folder: Path) -> None:
    made = run("make", "train:golden", VERSION, folder=folder)
    assert (made.returncode, made.stderr) == (0, "")
    assert "2 golden requests, golden/0000.json to golden/0001.json" in made.stdout
    checked = run("check", VERSION, folder=folder)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "2 golden requests give the same: 5 rows of keys, 3 scores" in checked.stdout


def test_what_was_recorded_is_published_along(folder: Path) -> None:
    run("make", "train:golden", VERSION, folder=folder)
    place = folder / VERSION
    files = [str(place / "golden" / name) for name in ("0000.json", "0001.json")]
    published = subprocess.run(
        [sys.executable, "-m", "anabranch_server", "publish", "shop/ctr", str(place / "model.onnx"),
         "--model-yaml", str(place / "model.yaml"), "--golden", files[0], "--golden", files[1]],
        capture_output=True,
        text=True,
        timeout=120,
        env=SURROUNDINGS,
        cwd=folder,
        check=False,
    )  # fmt: skip
    assert (published.returncode, published.stderr) == (0, "")
    assert run("check", "shop/ctr/1", folder=folder).returncode == 0
    again = run("make", "train:golden", "shop/ctr/1", "--replace", folder=folder)
    assert again.returncode == 1
    assert "is published" in again.stderr


def test_the_first_difference_is_printed(folder: Path) -> None:
    run("make", "train:golden", VERSION, folder=folder)
    (folder / VERSION / "model.yaml").write_text(YAML.replace("seed: 0", "seed: 1"))
    checked = run("check", VERSION, folder=folder)
    assert (checked.returncode, checked.stdout) == (1, "")
    assert checked.stderr.startswith("anabranch: golden/0000.json: feature 'country', user: found")
    as_json = run("check", VERSION, "--json", folder=folder)
    found = json.loads(as_json.stdout)
    assert as_json.returncode == 1
    assert found["ok"] is False
    assert found["difference"]["name"] == "country"
    assert found["difference"]["row"] is None
    assert found["error"] == checked.stderr.removeprefix("anabranch: ").strip()
    shown = json.loads(next(block for block in blocks("json") if '"ok"' in block))
    assert list(shown) == list(found)
    assert list(shown["difference"]) == list(found["difference"])


def test_json_of_what_is_the_same(folder: Path) -> None:
    made = run("make", "train:golden", VERSION, "--json", folder=folder)
    assert json.loads(made.stdout) == {"files": ["golden/0000.json", "golden/0001.json"]}
    found = json.loads(run("check", VERSION, "--json", folder=folder).stdout)
    assert (found["ok"], found["error"], found["difference"]) == (True, None, None)
    assert (found["keys"], found["scores"], found["unproven"]) == (5, 3, [])


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("train", 2, "expected MODULE:FUNCTION"),
        ("nothing:golden", 2, "no module 'nothing'"),
        ("train:nothing", 2, "module 'train' has no function 'nothing'"),
        ("train:COUNTRIES", 2, "module 'train' has no function 'COUNTRIES'"),
        ("train:number", 1, "train:number returned int"),
        ("train:wrong", 1, "golden request 0: request"),
        ("train:failing", 1, "train:failing failed; nothing was written"),
        ("broken:golden", 1, "No module named 'not_installed'"),
    ],
)
def test_what_cannot_be_recorded_is_said(folder: Path, function: str, code: int, said: str) -> None:
    with (folder / "train.py").open("a") as file:
        file.write(
            "\ndef number():\n    return 5\n"
            "\ndef wrong():\n    yield {'request': {}}\n"
            "\ndef failing():\n    yield from golden()\n    raise RuntimeError('no more data')\n"
        )
    (folder / "broken.py").write_text("import not_installed\n")
    made = run("make", function, VERSION, folder=folder)
    assert made.returncode == code
    assert said in made.stderr
    assert not (folder / VERSION / "golden").exists()


def test_golden_requests_are_replaced_only_when_asked(folder: Path) -> None:
    run("make", "train:golden", VERSION, folder=folder)
    again = run("make", "train:golden", VERSION, folder=folder)
    assert again.returncode == 1
    assert "has 2 golden requests already" in again.stderr
    assert run("make", "train:golden", VERSION, "--replace", folder=folder).returncode == 0


def test_a_folder_without_golden_requests_fails(folder: Path) -> None:
    checked = run("check", VERSION, folder=folder)
    assert checked.returncode == 1
    assert "the version has no golden/*.json" in checked.stderr
    assert run("check", folder=folder).returncode == 2


def test_the_file_that_is_shown_is_one() -> None:
    shown = next(block for block in blocks("json") if '"request"' in block)
    golden.decode(shown.encode(), "docs/golden.md")


@pytest.mark.parametrize("name", ["train.py", "train_torch.py", "train_pandas.py"])
def test_examples_are_python(name: str) -> None:
    compile(example(name), name, "exec")


def test_the_example_with_pandas_is_recorded(folder: Path) -> None:
    (folder / "train_pandas.py").write_text(
        example("train_pandas.py") + "\nimport xxhash\n"
        "\ndef encode(rows):\n"
        "    hashed = [xxhash.xxh64_intdigest(one.encode()) % 1000 for one in rows['country']]\n"
        "    return rows.assign(country=hashed)[['country', 'item_id']]\n"
        "\ndef predict(encoded):\n"
        "    return encoded['country'] / 1000000 + encoded['item_id'] / 100\n"
    )
    pandas: Any = importlib.import_module("pandas")
    frame = pandas.DataFrame(
        {
            "user_id": [1, 1, 2],
            "country": ["de", "de", "fr"],
            "item_id": [11, 12, 13],
            "price": [0.5, 1.0, 2.0],
        }
    )
    frame.to_parquet(folder / "held_out.parquet")
    place = folder / VERSION
    more = "  - {name: user_id, side: user, type: int64}\n"
    more += "  - {name: price, side: candidate, type: float32}\n"
    (place / "model.yaml").write_text(
        YAML.replace("user_inputs: [country]", "user_inputs: [country, user_id]").replace(
            "ranking:", f"{more}ranking:"
        )
    )
    write_graph(
        place,
        GRAPH.replace("int64[N] item_id)", "int64[N] item_id, int64[N] user_id, float[N] price)"),
    )
    made = run("make", "train_pandas:golden", VERSION, folder=folder)
    assert (made.returncode, made.stderr) == (0, "")
    first = golden.decode((place / "golden" / "0000.json").read_bytes(), "0000.json")
    assert first.request.candidates == {"item_id": (11, 12), "price": (0.5, 1.0)}
    checked = run("check", VERSION, folder=folder)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_the_example_with_pytorch_is_recorded(folder: Path) -> None:
    (folder / "train_torch.py").write_text(
        example("train_torch.py")
        + """
import xxhash

class Model(torch.nn.Module):
    def forward(self, country, hist, item_id):
        return (country / 1000000 + item_id / 100).unsqueeze(-1)

class Dataset:
    def encode(self, user, candidates):
        rows = len(candidates["item_id"])
        key = xxhash.xxh64_intdigest(user["country"].encode(), seed=0) % 1000
        hist = (user["hist"] + [0, 0, 0])[:3]
        return {
            "country": torch.full((rows,), key),
            "hist": torch.tensor([hist] * rows),
            "item_id": torch.tensor(candidates["item_id"]),
        }

def held_out_requests():
    yield {"country": "de", "hist": [4]}, {"item_id": [11, 12]}

model, dataset = Model(), Dataset()
"""
    )
    place = folder / VERSION
    ragged = "{max_length: 3, pad_to: 3, padding: 0}"
    hist = f"  - {{name: hist, side: user, type: int64, ragged: {ragged}}}\n"
    (place / "model.yaml").write_text(
        YAML.replace("user_inputs: [country]", "user_inputs: [country, hist]").replace(
            "ranking:", f"{hist}ranking:"
        )
    )
    write_graph(place, GRAPH.replace("int64[N] item_id)", "int64[N] item_id, int64[N, 3] hist)"))
    made = run("make", "train_torch:golden", VERSION, folder=folder)
    assert (made.returncode, made.stderr) == (0, "")
    checked = run("check", VERSION, folder=folder)
    assert (checked.returncode, checked.stderr) == (0, "")
