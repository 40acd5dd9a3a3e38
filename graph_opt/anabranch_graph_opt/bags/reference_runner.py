"""Running small graphs with the reference implementation of ONNX, where no backend is at hand."""

import os
from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from anabranch_graph_opt.running import Array
from anabranch_wire.errors import InvalidInput

__all__ = ["ReferenceRunner"]

_FAILURES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RuntimeError,
)


class ReferenceRunner:
    """A `ModelRunner` for one thread; slow, and exact enough for parts of a graph."""

    def __init__(self) -> None:
        self._model: str | os.PathLike[str] | bytes | None = None
        self._evaluator: ReferenceEvaluator | None = None

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return every output by name; see `ModelRunner`.

        Raises:
            InvalidInput: the model cannot be run on these inputs.
        """
        try:
            if self._evaluator is None or self._model is not model:
                loaded = onnx.load_from_string(model) if isinstance(model, bytes) else str(model)
                self._evaluator = ReferenceEvaluator(loaded)
                self._model = model
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(None, dict(inputs))
        except _FAILURES as error:
            raise InvalidInput(f"the reference cannot run it: {error}") from error
        names = self._evaluator.output_names
        return {str(name): np.asarray(output) for name, output in zip(names, outputs, strict=True)}
