"""Which numbers activations take, seen on requests: what the fixed scales of int8 layers come from.

The lowest and the highest number that was seen count, not percentiles. The requests at hand are a
few hundred rows at most, of which a percentile would clip some for certain; and the activations
that stand out are those of the rows that a ranking is about. Numbers beyond what was seen are
clipped when they come, in their own row alone.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt.model_source import ModelSource, open_model
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.precision.layers import find_layers
from anabranch_graph_opt.running import Array

__all__ = ["ActivationRange", "Observed", "observe", "ranges_digest"]

_STEPS: Final = 255


@dataclass(frozen=True, slots=True)
class ActivationRange:
    """The numbers of an activation, zero among them.

    Attributes:
        low: the lowest, 0 at most.
        high: the highest, 0 at least.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= 0.0 <= self.high:
            raise ValueError(f"range {self.low} to {self.high}: expected 0 inside")

    @property
    def scale(self) -> float:
        """How far two neighbouring numbers of eight bits are apart."""
        return (self.high - self.low) / _STEPS or 1.0

    @property
    def zero_point(self) -> int:
        """The number of eight bits that is 0."""
        return round(-self.low / self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """A model that tells the lowest and the highest number of each activation of its layers.

    Attributes:
        model: in normal form, with two outputs more for each of `activations`.
        activations: name of the value -> names of those outputs.
    """

    model: ir.Model
    activations: Mapping[str, tuple[str, str]]

    def ranges(self, answers: Iterable[Mapping[str, Array]]) -> dict[str, ActivationRange]:
        """Return the range of each activation over all answers of the model.

        Activations that were never seen, or that were not finite, are missing.
        """
        seen = list(answers)
        found: dict[str, ActivationRange] = {}
        for name, (lowest, highest) in self.activations.items():
            low = min((float(each[lowest]) for each in seen), default=np.inf)
            high = max((float(each[highest]) for each in seen), default=-np.inf)
            if np.isfinite(low) and np.isfinite(high):
                found[name] = ActivationRange(min(low, 0.0), max(high, 0.0))
        return found


def observe(source: ModelSource) -> Observed:
    """Return a model that shows the activations of its layers; see `find_layers`.

    Args:
        source: the model, which is not changed.

    Raises:
        NotFound, Corrupt, InvalidInput, Unsupported: as `open_model` and `normalise`.
    """
    model = normalise(open_model(source)).model
    activations: dict[str, tuple[str, str]] = {}
    for layer in find_layers(model):
        name = str(layer.data.name)
        if name in activations:
            continue
        outputs = (f"ab_lowest_{len(activations)}", f"ab_highest_{len(activations)}")
        for operator, output in zip(("ReduceMin", "ReduceMax"), outputs, strict=True):
            node = ir.node(operator, [layer.data], {"keepdims": 0})
            value = node.outputs[0]
            value.name, value.shape = output, ir.Shape([])
            value.type = ir.TensorType(ir.DataType.FLOAT)
            model.graph.append(node)
            model.graph.outputs.append(value)
        activations[name] = outputs
    return Observed(model, activations)


def ranges_digest(ranges: Mapping[str, ActivationRange]) -> str:
    """Return a digest of what was seen: graphs with other scales are other graphs."""
    lines = [f"{name!r} {each.low!r} {each.high!r}" for name, each in sorted(ranges.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
