"""Real models with inputs and expected outputs: the dozen in the tree, and the whole corpus."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CorpusModel", "corpus_models", "is_required", "tree_models"]

_ROOT = Path(__file__).resolve().parents[3]

Batch = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class CorpusModel:
    """One entry: a folder with model.onnx, inputs.npz, expected.npz."""

    folder: Path
    row_independent: bool | None

    @property
    def name(self) -> str:
        """Folder name, also the name it is served under."""
        return self.folder.name

    def batches(self) -> list[Batch]:
        """Inputs of both batches, by input name; what the graph does not take is left out."""
        meta = json.loads((self.folder / "meta.json").read_bytes())
        taken = {entry["name"] for entry in meta["inputs"]}
        with np.load(self.folder / "inputs.npz", allow_pickle=False) as arrays:
            batches = [_named(arrays, f"b{number}.") for number in (0, 1)]
        return [{name: batch[name] for name in batch.keys() & taken} for batch in batches]

    def expected(self) -> list[Batch]:
        """What ONNX Runtime answered for the whole model, by output name."""
        with np.load(self.folder / "expected.npz", allow_pickle=False) as arrays:
            return [_named(arrays, f"b{number}.ort.") for number in (0, 1)]


def tree_models() -> list[CorpusModel]:
    """The models that every clone has."""
    folders = sorted(path.parent for path in (_ROOT / "tests/models").glob("*/model.onnx"))
    return [
        CorpusModel(folder, json.loads((folder / "meta.json").read_bytes()).get("row_independent"))
        for folder in folders
    ]


def corpus_models() -> list[CorpusModel]:
    """The whole corpus; empty where it is not there and not required.

    Raises:
        FileNotFoundError: ANABRANCH_REQUIRE names `corpus` and it is not there.
    """
    root = Path(os.environ.get("ANABRANCH_CORPUS", _ROOT.parent / "shared/corpus"))
    index = root / "index.json"
    if not index.is_file():
        if is_required("corpus"):
            raise FileNotFoundError("ANABRANCH_REQUIRE names corpus: set ANABRANCH_CORPUS")
        return []
    return [
        CorpusModel(root / entry["name"], entry["row_independent"])
        for entry in json.loads(index.read_bytes())
    ]


def is_required(what: str) -> bool:
    """Whether ANABRANCH_REQUIRE says that a missing `what` fails instead of skipping."""
    return what in os.environ.get("ANABRANCH_REQUIRE", "").split(",")


def _named(arrays: np.lib.npyio.NpzFile, prefix: str) -> Batch:
    return {key[len(prefix) :]: arrays[key] for key in arrays.files if key.startswith(prefix)}
