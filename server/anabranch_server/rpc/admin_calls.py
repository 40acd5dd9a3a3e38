"""The inference service as the admin port answers it: repository, log and trace calls."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from google.protobuf.message import Message

from anabranch_server.administration import Administration
from anabranch_server.audit import Changes
from anabranch_server.describe import server_metadata
from anabranch_server.repository_calls import LogSetting, RepositoryCalls
from anabranch_server.rpc.answers import parse
from anabranch_wire import oip
from anabranch_wire.errors import PermissionDenied, Unavailable
from anabranch_wire.services import INFERENCE

__all__ = ["ADMIN_CHANGES", "LoopAnswer", "admin_calls"]

LoopAnswer = Callable[[bytes], Awaitable[bytes]]
"""Serialised request in, serialised response out, on the supervisor's event loop; raises errors of
the tree."""

ADMIN_CHANGES: Final = frozenset({"RepositoryModelLoad", "RepositoryModelUnload"})
"""Calls that may take long."""

_Request = TypeVar("_Request", bound=Message)


def admin_calls(administration: Administration, server_version: str) -> Mapping[str, LoopAnswer]:
    """Return method name -> answer for every unary call of the service.

    What belongs to the data port is refused.
    """
    calls = _Calls(administration, server_version)
    answers: dict[str, LoopAnswer] = {
        name: _refusal(name) for name, method in INFERENCE.methods.items() if not method.streams
    }
    answers["ServerLive"] = _parsed(oip.ServerLiveRequest, calls.server_live)
    answers["ServerReady"] = _parsed(oip.ServerReadyRequest, calls.server_ready)
    answers["ServerMetadata"] = _parsed(oip.ServerMetadataRequest, calls.server_metadata)
    answers["RepositoryIndex"] = _parsed(oip.RepositoryIndexRequest, calls.index)
    answers["RepositoryModelLoad"] = _parsed(oip.RepositoryModelLoadRequest, calls.load)
    answers["RepositoryModelUnload"] = _parsed(oip.RepositoryModelUnloadRequest, calls.unload)
    answers["TraceSetting"] = _parsed(oip.TraceSettingRequest, calls.trace_setting)
    answers["LogSettings"] = _parsed(oip.LogSettingsRequest, calls.log_settings)
    return answers


def _parsed(
    request_class: type[_Request], answer: Callable[[_Request], Awaitable[Message]]
) -> LoopAnswer:
    async def answered(body: bytes) -> bytes:
        return (await answer(parse(request_class, body))).SerializeToString()

    return answered


def _refusal(name: str) -> LoopAnswer:
    async def refuse(_: bytes) -> bytes:
        raise PermissionDenied(f"{name} is answered on the data port only")

    return refuse


class _Calls:
    def __init__(self, administration: Administration, server_version: str) -> None:
        self._administration = administration
        self._repository = RepositoryCalls(administration, Changes(administration))
        self._version = server_version

    async def server_live(self, _: oip.ServerLiveRequest) -> oip.ServerLiveResponse:
        return oip.ServerLiveResponse(live=True)

    async def server_ready(self, _: oip.ServerReadyRequest) -> oip.ServerReadyResponse:
        try:
            self._administration.check_ready()
        except Unavailable:
            return oip.ServerReadyResponse(ready=False)
        return oip.ServerReadyResponse(ready=True)

    async def server_metadata(self, _: oip.ServerMetadataRequest) -> oip.ServerMetadataResponse:
        metadata = server_metadata(self._version)
        return oip.ServerMetadataResponse(
            name=metadata.name,
            version=metadata.version,
            extensions=["model_repository", "logging", "trace"],
        )

    async def index(self, request: oip.RepositoryIndexRequest) -> oip.RepositoryIndexResponse:
        entries = await self._repository.index(request.repository_name, only_ready=request.ready)
        return oip.RepositoryIndexResponse(
            models=[
                oip.RepositoryIndexResponse.ModelIndex(
                    name=entry.name, version=entry.version, state=entry.state, reason=entry.reason
                )
                for entry in entries
            ]
        )

    async def load(
        self, request: oip.RepositoryModelLoadRequest
    ) -> oip.RepositoryModelLoadResponse:
        await self._repository.load(
            request.repository_name, request.model_name, list(request.parameters)
        )
        return oip.RepositoryModelLoadResponse()

    async def unload(
        self, request: oip.RepositoryModelUnloadRequest
    ) -> oip.RepositoryModelUnloadResponse:
        await self._repository.unload(request.repository_name, request.model_name)
        return oip.RepositoryModelUnloadResponse()

    async def trace_setting(self, request: oip.TraceSettingRequest) -> oip.TraceSettingResponse:
        wanted = {name: list(setting.value) for name, setting in request.settings.items()}
        settings = await self._repository.trace_settings(request.model_name, wanted)
        return oip.TraceSettingResponse(
            settings={
                name: oip.TraceSettingResponse.SettingValue(value=values)
                for name, values in settings.items()
            }
        )

    async def log_settings(self, request: oip.LogSettingsRequest) -> oip.LogSettingsResponse:
        wanted = {name: _value(setting) for name, setting in request.settings.items()}
        settings = await self._repository.log_settings(wanted)
        return oip.LogSettingsResponse(
            settings={name: _setting(value) for name, value in settings.items()}
        )


def _value(setting: oip.LogSettingsRequest.SettingValue) -> LogSetting | None:
    kind = setting.WhichOneof("parameter_choice")
    if kind is None:
        return None
    value: LogSetting = getattr(setting, kind)
    return value


def _setting(value: LogSetting) -> oip.LogSettingsResponse.SettingValue:
    if isinstance(value, bool):
        return oip.LogSettingsResponse.SettingValue(bool_param=value)
    if isinstance(value, int):
        return oip.LogSettingsResponse.SettingValue(uint32_param=value)
    return oip.LogSettingsResponse.SettingValue(string_param=value)
