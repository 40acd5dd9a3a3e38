"""Export the fitted model to ONNX, and prove that the file scores as the model does."""

import warnings
from pathlib import Path
from typing import Final

import numpy as np
import onnx_ir
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx_ir.passes.common import ClearMetadataAndDocStringPass

from open_bandit.features import Inputs
from open_bandit.fitting import score, tensors
from open_bandit.network import ClickModel

__all__ = ["OUTPUT", "export", "run", "verify"]

OUTPUT: Final = "click"

_OPSET: Final = 18
_TOLERANCE: Final = 1e-5


def export(model: ClickModel, example: Inputs, path: Path) -> None:
    """Write one self-contained ONNX file whose axis 0 is dynamic in every input.

    What the exporter notes about this machine (stack traces, paths, build of torch) is left out,
    so the bytes depend on the weights alone.

    Args:
        model: the fitted model.
        example: name -> (N, ...) of every input, N at least 2 (1 would be baked in).
        path: the file to write.
    """
    rows = torch.export.Dim("N")
    with warnings.catch_warnings():
        # The exporter warns of its own internals, and that all inputs share the axis N, as meant.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model,
            kwargs=tensors(example),
            dynamo=True,
            dynamic_shapes={name: {0: rows} for name in example},
            input_names=list(example),
            output_names=[OUTPUT],
            opset_version=_OPSET,
            verbose=False,
        )
    assert program is not None  # dynamo=True without a file returns the program
    graph = program.model
    ClearMetadataAndDocStringPass()(graph)
    graph.producer_version = torch.__version__.partition("+")[0]
    onnx_ir.save(graph, path)


def verify(model: ClickModel, path: Path, inputs: Inputs) -> float:
    """Return the largest difference between the file in ONNX Runtime and the model in torch.

    Raises:
        ValueError: it is above 1e-5.
    """
    found = run(path, inputs)
    difference = float(np.abs(found - score(model, inputs)).max())
    if difference > _TOLERANCE:
        raise ValueError(f"{path.name}: differs from the model by {difference:.2e}")
    return difference


def run(path: Path, inputs: Inputs) -> NDArray[np.float32]:
    """Scores (N,) of the file in ONNX Runtime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    scores: NDArray[np.float32] = session.run([OUTPUT], dict(inputs))[0]
    return scores[:, 0]
