"""The examples of docs/repository.md are what the parsers read."""

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_model_store.model_yaml import ModelMeaning, Optimize, Parity
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.supported import check_deployment, check_meaning
from anabranch_model_store.version_files import verify_version
from anabranch_model_store.warmup_files import read_samples
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_wire.errors import InvalidInput
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

PAGE = (Path(__file__).parents[2] / "docs" / "repository.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "yaml"])
def test_documents_on_the_page_can_be_served(text: str) -> None:
    if text.startswith("# model.yaml\n"):
        check_meaning(read_yaml(text.encode(), ModelMeaning, "model.yaml"))
    else:
        assert text.startswith("# serving.yaml\n")
        check_deployment(read_yaml(text.encode(), Deployment, "serving.yaml"))


def test_warm_up_requests_on_the_page_fit_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = (TensorSpec("ids", "INT64", (-1, 1)), TensorSpec("x", "FP32", (-1, 2)))
    outputs = (TensorSpec("p", "FP32", (-1, 1)),)
    (tmp_path / "warmup").mkdir()
    monkeypatch.chdir(tmp_path / "warmup")
    for kind, text in BLOCKS:
        if kind == "python":
            exec(text)
        elif kind == "json":
            Path("request.json").write_text(json.dumps(json.loads(text)))
    samples = read_samples(verify_version(tmp_path, Snapshot("m", 1)), inputs, outputs)
    assert [sample.name for sample in samples] == ["warmup/request.json", "warmup/warmup.npz"]
    for name in ("ids", "x"):
        assert np.array_equal(samples[0].inputs[name], samples[1].inputs[name])
    assert list(samples[1].expected) == ["p"]


def test_the_refusal_on_the_page_is_the_real_one() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_yaml(b"required: true\nexecuters: {}\n", Deployment, "serving.yaml")
    shown = next(text for _, text in BLOCKS if "executers" in text)
    assert caught.value.message.startswith(shown.split(" expected one of")[0])


def test_every_key_of_the_tables_is_one_of_the_documents() -> None:
    known = {*keys(ModelMeaning(optimize=Optimize(parity=Parity()))), *keys(Deployment())}
    named = re.findall(r"^\| (`[^|]*`) \|", PAGE.split("## model.yaml and")[1], re.MULTILINE)
    mentioned = {key for cell in named for key in re.findall(r"`([a-z_.]+)`", cell)}
    assert len(mentioned) > 25
    assert mentioned - {"model.onnx", "warmup"} <= known


def keys(document: msgspec.Struct, above: str = "") -> list[str]:
    found: list[str] = []
    for name in document.__struct_fields__:
        value = getattr(document, name)
        found.append(above + name)
        if isinstance(value, msgspec.Struct):
            found += keys(value, f"{above}{name}.")
    return found
