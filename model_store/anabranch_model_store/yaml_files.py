"""Where model.yaml and serving.yaml lie, and which of them counts for a version."""

from pathlib import Path

from anabranch_model_store.containment import read_inside
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.version_files import VersionFiles
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_model_store.yaml_text import MAX_BYTES
from anabranch_wire.errors import NotFound

__all__ = ["read_deployment", "read_meaning"]

_MEANING = "model.yaml"
_DEPLOYMENT = "serving.yaml"


def read_deployment(model_folder: Path) -> Deployment:
    """Return how a model is deployed; the defaults where it has no serving.yaml.

    Raises:
        InvalidInput: the file is malformed; the message names line, path and what was expected.
        TooLarge, Unsupported, Unavailable: it cannot be read.
    """
    try:
        text = read_inside(model_folder, _DEPLOYMENT, MAX_BYTES)
    except NotFound:
        return Deployment()
    return read_yaml(text, Deployment, _DEPLOYMENT)


def read_meaning(files: VersionFiles, model_folder: Path) -> ModelMeaning:
    """Return what a version means: its own model.yaml, else the model's, else the defaults.

    Raises:
        InvalidInput: the file is malformed; the message names line, path and what was expected.
        TooLarge, Unsupported, Unavailable: it cannot be read.
    """
    folder = files.folder if _MEANING in files else model_folder
    try:
        text = read_inside(folder, _MEANING, MAX_BYTES)
    except NotFound:
        return ModelMeaning()
    return read_yaml(text, ModelMeaning, _MEANING)
