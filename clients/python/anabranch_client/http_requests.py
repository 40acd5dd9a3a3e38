"""Calls over HTTP: the Open Inference Protocol in its binary form, and `:rank` in JSON."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_client.calls import Answer, Call
from anabranch_client.http_errors import error_from_http
from anabranch_client.http_flights import TIMEOUT_HEADER
from anabranch_client.infer_bodies import HEADER_LENGTH, Scores, decode_answer, encode_request
from anabranch_client.rank_json import decode_ranking, encode_ranking
from anabranch_client.rank_options import RankOptions
from anabranch_client.rankings import Ranking
from anabranch_client.requests import ModelMetadata, Target
from anabranch_wire.errors import Internal, NotFound
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["HttpRequests"]


class HttpRequests:
    """Makes calls over HTTP. Stateless.

    Args:
        prefix: path of the client's URL, which messages name where nothing was found below it.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix: Final = prefix

    def score(
        self,
        target: Target,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[str] | None,
    ) -> Call[Scores]:
        """Return a scoring call."""
        body, header_length = encode_request(inputs, outputs)

        def read(answer: Answer) -> Scores:
            self._raise_unless_ok(answer)
            length = answer.headers.get(HEADER_LENGTH.lower(), str(len(answer.body)))
            if not (length.isascii() and length.isdecimal()):
                raise Internal(f"the answer's {HEADER_LENGTH} is {length!r}")
            return decode_answer(answer.body, int(length), target.request_id)

        headers = {
            "content-type": "application/octet-stream",
            HEADER_LENGTH.lower(): str(header_length),
        }
        return Call(f"{_oip_path(target)}/infer", read, body, _headers(target, headers))

    def rank(
        self, target: Target, user: object, candidates: object, options: RankOptions
    ) -> Call[Ranking]:
        """Return a ranking call."""
        body = encode_ranking(user, candidates, options)

        def read(answer: Answer) -> Ranking:
            self._raise_unless_ok(answer)
            return decode_ranking(answer.body, target.request_id)

        headers = _headers(target, {"content-type": "application/json"})
        return Call(_rank_path(target), read, body, headers)

    def metadata(self, target: Target) -> Call[ModelMetadata]:
        """Return a call that asks what a model takes and gives."""

        def read(answer: Answer) -> ModelMetadata:
            self._raise_unless_ok(answer)
            return _metadata(answer.body)

        path = _oip_path(target)
        return Call(path, read, headers=_headers(target, {}), method="GET", hedged=False)

    def ready(self, request_id: str) -> Call[bool]:
        """Return a call that asks whether a server can answer."""

        def read(answer: Answer) -> bool:
            if answer.status in (400, 503):  # Triton says 400
                return False
            self._raise_unless_ok(answer)
            return True

        headers = {"x-request-id": request_id}
        return Call("/v2/health/ready", read, headers=headers, method="GET", hedged=False)

    def _raise_unless_ok(self, answer: Answer) -> None:
        if answer.status == 200:
            return
        error = error_from_http(answer.status, answer.body, answer.headers)
        if isinstance(error, NotFound) and self._prefix:
            raise NotFound(
                f"{error.message} (below {self._prefix!r}, the path of the client's URL: leave it "
                "out unless a proxy asks for it)"
            )
        raise error


class _Tensor(msgspec.Struct):
    name: str
    datatype: Datatype
    shape: tuple[int, ...]

    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, self.datatype, self.shape)


class _Metadata(msgspec.Struct):
    name: str
    inputs: list[_Tensor]
    outputs: list[_Tensor]
    versions: tuple[str, ...] = ()
    platform: str = ""


def _metadata(body: bytes) -> ModelMetadata:
    try:
        found = msgspec.json.decode(body, type=_Metadata)
    except msgspec.DecodeError as error:
        raise Internal(f"the answer is not a model's metadata: {error}") from None
    return ModelMetadata(
        name=found.name,
        versions=found.versions,
        platform=found.platform,
        inputs=tuple(t.spec() for t in found.inputs),
        outputs=tuple(t.spec() for t in found.outputs),
    )


def _oip_path(target: Target) -> str:
    path = f"/v2/models/{quote(target.model, safe='')}"
    return path if target.version == "" else f"{path}/versions/{quote(target.version, safe='')}"


def _rank_path(target: Target) -> str:
    path = f"/v1/models/{quote(target.model, safe='')}"
    if target.version:
        kind = "versions" if target.version.isdecimal() else "labels"
        path += f"/{kind}/{quote(target.version, safe='')}"
    return f"{path}:rank"


def _headers(target: Target, headers: dict[str, str]) -> dict[str, str]:
    headers["x-request-id"] = target.request_id
    if target.told:
        headers[TIMEOUT_HEADER] = ""  # each attempt says what is left
    return headers
