"""Optimised models run by their definition: prelude, lookups in NumPy, what is left.

ONNX Runtime runs graphs as they are here: its own rewriting crashes on some sound models.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.reference_lookups import look_up
from anabranch_runtime.backends.ort_runner import OrtModelRunner

__all__ = ["OptimizedModel", "WholeModel", "cut_all", "parsed", "same_answers"]

Arrays = Mapping[str, NDArray[Any]]


def parsed(text: str, opset: int = 17, **weights: NDArray[Any]) -> onnx.ModelProto:
    """Return the model that `text` gives in the form of onnx.parser, with weights added."""
    model: onnx.ModelProto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> {text}'
    )
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def cut_all(model: onnx.ModelProto, **options: Any) -> Optimized:
    """Optimise a model, whatever the size of its tables."""
    return optimize(model, OptimizeOptions(min_table_bytes=0, **options))


class WholeModel:
    """A model as it was exported."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._content = model.SerializeToString()
        self._runner = OrtModelRunner(is_optimized=True)

    def run(self, batch: Arrays) -> Arrays:
        """Return every output; see `ModelRunner`."""
        return self._runner.run(self._content, batch)


class OptimizedModel:
    """What became of a model, without a user side."""

    def __init__(self, optimized: Optimized) -> None:
        assert optimized.user is None
        self._optimized = optimized
        self._dense = graph_bytes(optimized.dense)
        self._prelude = None if optimized.prelude is None else graph_bytes(optimized.prelude)
        self._runner = OrtModelRunner(is_optimized=True)
        self._prelude_runner = OrtModelRunner(is_optimized=True)

    def run(self, batch: Arrays) -> Arrays:
        """Return every output.

        Raises:
            InvalidInput: an id is outside of its table, or a graph refuses the batch.
        """
        optimized = self._optimized
        arrays = dict(batch)
        if self._prelude is not None and optimized.prelude is not None:
            wanted = {str(value.name) for value in optimized.prelude.graph.inputs}
            taken = {name: array for name, array in batch.items() if name in wanted}
            arrays.update(self._prelude_runner.run(self._prelude, taken))
        buffers = look_up(optimized, arrays, self._rows(batch))
        passed = {name: batch[name] for name in optimized.pass_through}
        return self._runner.run(self._dense, {**passed, **buffers})

    def _rows(self, batch: Arrays) -> int:
        varying = [spec.name for spec in self._optimized.inputs if spec.shape[:1] == (-1,)]
        return len(batch[varying[0]]) if varying else 1


def same_answers(found: Arrays, expected: Arrays, tolerance: float = 1e-6) -> bool:
    """Whether two models gave the same outputs: names, shapes, types and numbers."""
    return found.keys() == expected.keys() and all(
        found[name].shape == array.shape
        and found[name].dtype == array.dtype
        and np.allclose(found[name], array, rtol=tolerance, atol=tolerance, equal_nan=True)
        for name, array in expected.items()
    )
