from pathlib import Path

import pytest

from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_model_store.yaml_files import read_deployment, read_meaning
from anabranch_wire.errors import InvalidInput
from anabranch_wire.snapshots import Snapshot


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "ctr" / "1").mkdir(parents=True)
    return tmp_path / "ctr"


def version(model: Path) -> VersionFiles:
    return verify_version(model / "1", Snapshot("ctr", 1))


def test_without_files_the_defaults_hold(model: Path) -> None:
    assert read_deployment(model) == Deployment()
    assert read_meaning(version(model), model) == ModelMeaning()


def test_the_version_s_own_meaning_wins_over_the_model_s(model: Path) -> None:
    (model / "model.yaml").write_text("description: of the model")
    assert read_meaning(version(model), model).description == "of the model"
    (model / "1" / "model.yaml").write_text("row_independent: false")
    assert read_meaning(version(model), model) == ModelMeaning(row_independent=False)


def test_a_malformed_file_is_an_error(model: Path) -> None:
    (model / "serving.yaml").write_text("required: true\nexecuters: {}\n")
    with pytest.raises(
        InvalidInput,
        match=r"serving\.yaml: line 2: executers: unknown key, did you mean 'executors'",
    ):
        read_deployment(model)
    (model / "model.yaml").write_text("inputs: []")
    with pytest.raises(InvalidInput, match=r"model\.yaml: line 1: inputs: "):
        read_meaning(version(model), model)


def test_a_file_that_leads_elsewhere_is_refused(model: Path) -> None:
    (model.parent / "serving.yaml").write_text("")
    (model / "serving.yaml").symlink_to("../serving.yaml")
    with pytest.raises(InvalidInput, match="leads out of the folder"):
        read_deployment(model)
