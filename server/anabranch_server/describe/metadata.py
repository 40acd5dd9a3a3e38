"""Metadata of the Open Inference Protocol: the server, a model, its tensors."""

from dataclasses import dataclass
from typing import Final

from anabranch_runtime.catalog import Catalog
from anabranch_wire.tensors import TensorSpec

__all__ = ["ModelMetadata", "ServerMetadata", "TensorMetadata", "model_metadata", "server_metadata"]

_EXTENSIONS: Final = ["binary_tensor_data", "model_configuration", "parameters", "schedule_policy"]


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """What answers here.

    Attributes:
        name: name of the server program.
        version: its version.
        extensions: protocol extensions it answers, by their registered names.
    """

    name: str
    version: str
    extensions: list[str]


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """One input or output.

    Attributes:
        name: the ONNX graph's own name, or that of a feature.
        datatype: protocol datatype, such as `FP32`.
        shape: axes; -1 where the size varies from request to request, as rows do. A feature with
            one axis is ragged: its ids are flat, and `NAME.lengths` or `NAME.offsets` go with them.
    """

    name: str
    datatype: str
    shape: list[int]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """One version of a model.

    Attributes:
        name: model name.
        versions: every loaded version, ascending.
        platform: format and runtime.
        inputs: dense inputs in the graph's order, then features.
        outputs: outputs in the graph's order.
    """

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


def server_metadata(server_version: str) -> ServerMetadata:
    """Return what the server says of itself."""
    return ServerMetadata("anabranch", server_version, list(_EXTENSIONS))


def model_metadata(catalog: Catalog, model: str, selector: str = "") -> ModelMetadata:
    """Return the metadata of the version that `selector` picks.

    Raises:
        NotFound: no such model, version or label.
        Unavailable: known, but nothing of it is loaded.
    """
    served = catalog.resolve(model, selector)
    state = catalog.states.get(model)
    numbers = sorted(state.versions) if state else [served.snapshot.version]
    return ModelMetadata(
        name=model,
        versions=[str(number) for number in numbers],
        platform=served.platform,
        inputs=[_tensor(spec) for spec in served.inputs],
        outputs=[_tensor(spec) for spec in served.outputs],
    )


def _tensor(spec: TensorSpec) -> TensorMetadata:
    return TensorMetadata(spec.name, spec.datatype, list(spec.shape))
