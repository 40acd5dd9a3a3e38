"""A blocking client of the Open Inference Protocol over HTTP."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_client.connection import Answer, Connection
from anabranch_client.http_errors import error_from_http
from anabranch_client.infer_bodies import HEADER_LENGTH, Scores, decode_answer, encode_request
from anabranch_wire.errors import Internal, InvalidInput, NotFound
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["Client", "ModelMetadata"]

_TIMEOUT_HEADER: Final = "Anabranch-Timeout-Ms"


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model takes and gives.

    Attributes:
        name: of the model.
        versions: the loaded ones, as text.
        platform: what runs it.
        inputs: in the model's order; -1 in a shape varies from request to request.
        outputs: likewise.
    """

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Client:
    """A client over one kept-alive connection, opened on first use.

    For one thread at a time; give each thread its own. Usable as a context manager.
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        """Connects to nothing yet.

        Args:
            url: `http://HOST[:PORT][/PREFIX]`.
            timeout_s: limit of every call that is given none of its own.

        Raises:
            InvalidInput: `url` has another form.
        """
        self._connection: Final = Connection(url)
        self._timeout_s: Final = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later call opens another."""
        self._connection.close()

    def score(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        *,
        outputs: Sequence[str] | None = None,
        version: str | int = "",
        timeout_s: float | None = None,
    ) -> Scores:
        """Run a model on arrays.

        Args:
            model: its name.
            inputs: input name -> NumPy array. The dtype says the datatype; strings, of fixed width
                or as objects, are BYTES, and ml_dtypes' bfloat16 is BF16.
            outputs: which outputs to return; None for all, in the model's order.
            version: number or label; "" lets the server choose.
            timeout_s: how long the answer is of use: the server is told, and drops late work. None
                leaves that to the server, and waits as long as the client's own limit.

        Scoring changes nothing at the server. So a request that found a connection closed which had
        been kept alive, before anything of an answer came, is sent once more on a new one.

        Raises:
            InvalidInput: an argument is of another type, a dtype has no name in the protocol, or
                the server refused the request.
            AnabranchError: any other kind the server answered with.
            DeadlineExceeded: the time limit passed.
            Unavailable: the server cannot be reached, or has not loaded the model.
        """
        body, header_length = encode_request(inputs, outputs)
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(header_length)}
        if timeout_s is not None:
            headers[_TIMEOUT_HEADER] = str(max(1, math.ceil(_seconds(timeout_s) * 1000)))
        answer = self._connection.exchange(
            "POST",
            f"{_model_path(model, version)}/infer",
            body=body,
            headers=headers,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )
        self._raise_unless_ok(answer)
        json_length = answer.headers.get(HEADER_LENGTH.lower(), str(len(answer.body)))
        if not json_length.isdecimal():
            raise Internal(f"the answer's {HEADER_LENGTH} is {json_length!r}")
        return decode_answer(answer.body, int(json_length))

    def metadata(self, model: str, *, version: str | int = "") -> ModelMetadata:
        """Return what a model takes and gives.

        Raises:
            InvalidInput: an argument is of another type.
            NotFound: there is no such model or version.
            AnabranchError: any other kind the server answered with.
            Unavailable: the server cannot be reached.
        """
        answer = self._connection.exchange(
            "GET", _model_path(model, version), timeout_s=self._timeout_s
        )
        self._raise_unless_ok(answer)
        try:
            found = msgspec.json.decode(answer.body, type=_Metadata)
        except msgspec.DecodeError as error:
            raise Internal(f"the answer is not a model's metadata: {error}") from None
        return ModelMetadata(
            name=found.name,
            versions=found.versions,
            platform=found.platform,
            inputs=tuple(t.spec() for t in found.inputs),
            outputs=tuple(t.spec() for t in found.outputs),
        )

    def ready(self) -> bool:
        """Return whether every required model can answer.

        Raises:
            AnabranchError: the answer was neither yes nor no.
            Unavailable: the server cannot be reached.
        """
        answer = self._connection.exchange("GET", "/v2/health/ready", timeout_s=self._timeout_s)
        if answer.status in (400, 503):  # Triton says 400
            return False
        self._raise_unless_ok(answer)
        return True

    def _raise_unless_ok(self, answer: Answer) -> None:
        if answer.status == 200:
            return
        error = error_from_http(answer.status, answer.body, answer.headers)
        prefix = self._connection.prefix
        if isinstance(error, NotFound) and prefix:
            raise NotFound(
                f"{error.message} (below {prefix!r}, the path of the client's URL: leave it out "
                "unless a proxy asks for it)"
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


def _model_path(model: str, version: str | int) -> str:
    if not isinstance(model, str):
        raise InvalidInput(f"model: expected a name, got {type(model).__name__}")
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise InvalidInput(f"version: expected a number or label, got {type(version).__name__}")
    path = f"/v2/models/{quote(model, safe='')}"
    return path if version == "" else f"{path}/versions/{quote(str(version), safe='')}"


def _seconds(timeout_s: float) -> float:
    if not math.isfinite(timeout_s):
        raise InvalidInput(f"timeout_s: expected a number of seconds or None, got {timeout_s}")
    return timeout_s
