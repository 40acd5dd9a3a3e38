"""The small calls of the inference service: health, metadata, configuration, refusals."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

from anabranch_server.describe import (
    ModelConfiguration,
    TensorMetadata,
    configuration_of,
    model_metadata,
    server_metadata,
)
from anabranch_server.doors import DoorContext
from anabranch_server.rpc.answers import Answer, parsed, refusal
from anabranch_wire import oip
from anabranch_wire.errors import NotFound, PermissionDenied, Unavailable, Unsupported

__all__ = ["small_calls"]

_ADMIN: Final = (
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "TraceSetting",
    "LogSettings",
)
_SHARED_MEMORY: Final = tuple(
    f"{kind}SharedMemory{call}"
    for kind in ("System", "Cuda")
    for call in ("Status", "Register", "Unregister")
)


def small_calls(context: DoorContext) -> Mapping[str, Answer]:
    """Return method name -> answer for every unary call of the service but ModelInfer."""
    calls = _Calls(context)
    return {
        "ServerLive": parsed(oip.ServerLiveRequest, calls.server_live),
        "ServerReady": parsed(oip.ServerReadyRequest, calls.server_ready),
        "ModelReady": parsed(oip.ModelReadyRequest, calls.model_ready),
        "ServerMetadata": parsed(oip.ServerMetadataRequest, calls.server_metadata),
        "ModelMetadata": parsed(oip.ModelMetadataRequest, calls.model_metadata),
        "ModelConfig": parsed(oip.ModelConfigRequest, calls.model_config),
        "ModelStatistics": refusal(
            Unsupported, "ModelStatistics is not supported: read /metrics on the metrics port"
        ),
        **{
            name: refusal(PermissionDenied, f"{name} is answered on the admin port only")
            for name in _ADMIN
        },
        **{
            name: refusal(
                Unsupported, "shared memory is not supported: send and receive raw contents"
            )
            for name in _SHARED_MEMORY
        },
    }


class _Calls:
    def __init__(self, context: DoorContext) -> None:
        self._context = context

    def server_live(self, _: oip.ServerLiveRequest) -> oip.ServerLiveResponse:
        return oip.ServerLiveResponse(live=True)

    def server_ready(self, _: oip.ServerReadyRequest) -> oip.ServerReadyResponse:
        try:
            self._context.lifecycle.check_ready()
        except Unavailable:
            return oip.ServerReadyResponse(ready=False)
        return oip.ServerReadyResponse(ready=True)

    def model_ready(self, request: oip.ModelReadyRequest) -> oip.ModelReadyResponse:
        try:
            self._context.catalog.resolve(request.name, request.version)
        except (NotFound, Unavailable):
            return oip.ModelReadyResponse(ready=False)
        return oip.ModelReadyResponse(ready=True)

    def server_metadata(self, _: oip.ServerMetadataRequest) -> oip.ServerMetadataResponse:
        metadata = server_metadata(self._context.server_version)
        return oip.ServerMetadataResponse(
            name=metadata.name, version=metadata.version, extensions=metadata.extensions
        )

    def model_metadata(self, request: oip.ModelMetadataRequest) -> oip.ModelMetadataResponse:
        metadata = model_metadata(self._context.catalog, request.name, request.version)
        return oip.ModelMetadataResponse(
            name=metadata.name,
            versions=metadata.versions,
            platform=metadata.platform,
            inputs=_tensors(metadata.inputs),
            outputs=_tensors(metadata.outputs),
        )

    def model_config(self, request: oip.ModelConfigRequest) -> oip.ModelConfigResponse:
        served = self._context.catalog.resolve(request.name, request.version)
        configuration = configuration_of(served, self._context.limits.max_rows)
        return oip.ModelConfigResponse(config=_config(configuration))


def _tensors(tensors: Iterable[TensorMetadata]) -> list[oip.ModelMetadataResponse.TensorMetadata]:
    return [
        oip.ModelMetadataResponse.TensorMetadata(
            name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
        )
        for tensor in tensors
    ]


def _config(configuration: ModelConfiguration) -> oip.ModelConfig:
    own = {
        "description": configuration.description,
        "user_inputs": json.dumps(configuration.user_inputs),
        "rows": json.dumps(asdict(configuration.rows)),
        "batching": json.dumps(asdict(configuration.batching)),
        "queue": json.dumps(asdict(configuration.queue)),
    }
    return oip.ModelConfig(
        name=configuration.name,
        platform=configuration.platform,
        backend=configuration.backend,
        max_batch_size=configuration.max_batch_size,
        input=[
            oip.ModelInput(name=t.name, data_type=t.data_type, dims=t.dims)
            for t in configuration.input
        ],
        output=[
            oip.ModelOutput(name=t.name, data_type=t.data_type, dims=t.dims)
            for t in configuration.output
        ],
        instance_group=[
            oip.ModelInstanceGroup(
                name=group.name,
                count=group.count,
                kind=group.kind,
            )
            for group in configuration.instance_group
        ],
        default_model_filename=configuration.default_model_filename,
        parameters={
            name: oip.ModelParameter(string_value=value) for name, value in own.items() if value
        },
    )
