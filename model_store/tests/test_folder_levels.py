from pathlib import Path

import pytest

from anabranch_model_store.folder_levels import check_model_level, check_repository_level
from anabranch_wire.errors import InvalidInput


def make(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    return root


@pytest.mark.parametrize("sign", ["model.onnx", "manifest.json"])
def test_a_repository_named_too_deep_is_told_as_such(tmp_path: Path, sign: str) -> None:
    repository = make(tmp_path, f"ctr/1/{sign}", f"ctr/22/{sign}", "ctr/serving.yaml")

    check_repository_level(repository)
    with pytest.raises(InvalidInput, match=r"one model with versions 1, 22: the repository is"):
        check_repository_level(repository / "ctr")
    with pytest.raises(InvalidInput, match=f"the repository is {repository}, two levels up"):
        check_repository_level(repository / "ctr" / "1")


@pytest.mark.parametrize("sign", ["model.onnx", "manifest.json"])
def test_a_repository_named_too_high_is_told_as_such(tmp_path: Path, sign: str) -> None:
    make(tmp_path, f"models/ctr/1/{sign}", "notes/readme.md", f".old/ctr/1/{sign}")

    with pytest.raises(InvalidInput, match=rf"name one of them \({tmp_path / 'models'}\)"):
        check_repository_level(tmp_path)
    # A model may still get its first version, and a folder beside it be anything.
    make(tmp_path, f"ctr/1/{sign}")
    check_repository_level(tmp_path)


@pytest.mark.parametrize("sign", ["model.onnx", "manifest.json"])
def test_a_model_named_too_high_or_too_deep_is_told_as_such(tmp_path: Path, sign: str) -> None:
    repository = make(tmp_path, f"ctr/1/{sign}")

    check_model_level(repository / "ctr")
    check_model_level(repository / "new")
    with pytest.raises(InvalidInput, match=r"it holds models \(ctr\): name the model too"):
        check_model_level(repository)
    with pytest.raises(InvalidInput, match=f"name the model's folder, {repository / 'ctr'}"):
        check_model_level(repository / "ctr" / "1")


def test_models_may_have_numbers_for_names(tmp_path: Path) -> None:
    check_repository_level(make(tmp_path, "7/1/model.onnx", "8/1/model.onnx"))


def test_stray_versions_beside_models_leave_a_repository_one(tmp_path: Path) -> None:
    check_repository_level(make(tmp_path, "ctr/1/model.onnx", "1/model.onnx", "README.md"))


def test_an_empty_folder_may_be_anything(tmp_path: Path) -> None:
    check_repository_level(tmp_path)
    check_model_level(tmp_path)
