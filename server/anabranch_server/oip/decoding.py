"""A received body as a `ScoreRequest`: names, datatypes, shapes and limits checked on the way.

Nothing is allocated by a size that the caller wrote before the bytes that justify it were seen.
Binary tensors stay views of the body. A JSON head that comes again is not read again.
"""

import math
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.oip.binary import Body, view_tensor
from anabranch_server.oip.calls import CallOptions, ReplyForm
from anabranch_server.oip.deadlines import deadline_for
from anabranch_server.oip.documents import read_document
from anabranch_server.oip.json_tensors import parse_tensor
from anabranch_server.oip.messages import InferRequest, InputTensor, RequestParameters
from anabranch_server.oip.prepared import PreparedHeads, Terms, prepare
from anabranch_server.oip.raw_bodies import read_raw_body
from anabranch_server.oip.wanted import wanted_outputs
from anabranch_wire.errors import InvalidInput, TooLarge, Unsupported

__all__ = ["InferDecoder"]

_NO_PARAMETERS: Final = RequestParameters()
_MAX_TIMEOUT_US: Final = 2**64 - 1


class InferDecoder:
    """Decodes infer bodies under one set of limits. Safe from any thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._prepared = PreparedHeads()

    def decode(
        self,
        body: Body,
        json_bytes: int | None,
        served: ServedVersion,
        options: CallOptions,
    ) -> tuple[ScoreRequest, ReplyForm]:
        """Decode one body for the version that will answer it.

        Args:
            body: the whole body, decompressed. The request's arrays are views of it: it must not
                change as long as they live.
            json_bytes: length of the JSON at its front (`Inference-Header-Content-Length`); None
                when all of it is JSON; 0 when it is one raw tensor, which an empty body is too.
            served: the version chosen for the request.
            options: what came beside the body.

        Raises:
            InvalidInput: malformed, or not what the model takes; says what was expected.
            TooLarge: a limit was passed.
            Unsupported: shared memory or classification.
        """
        if json_bytes == 0 or not body:
            return read_raw_body(body, served, options, self._limits)
        if json_bytes is None:
            document, inputs, terms = self._read(body, len(body), served)
            return _request(inputs, terms, served, options)
        text = bytes(body[:json_bytes])
        known = self._prepared.find(served.rules, text, len(body))
        if known is not None:
            return _request(known.views(body), known.terms, served, options)
        document, inputs, terms = self._read(body, json_bytes, served)
        self._prepared.keep(text, prepare(document, json_bytes, len(body), served, terms))
        return _request(inputs, terms, served, options)

    def _read(
        self, body: Body, json_bytes: int, served: ServedVersion
    ) -> tuple[InferRequest, tuple[NDArray[np.generic], ...], Terms]:
        """Read and check everything."""
        limits = self._limits
        if json_bytes > len(body):
            raise InvalidInput(
                f"Inference-Header-Content-Length is {json_bytes}, but the body has "
                f"{len(body)} bytes"
            )
        document = read_document(body, json_bytes, limits)
        if len(document.inputs) > limits.max_tensors:
            raise TooLarge(
                f"{len(document.inputs)} inputs: at most {limits.max_tensors} are allowed"
            )
        arrays: dict[str, NDArray[np.generic]] = {}
        offset = json_bytes
        for tensor in document.inputs:
            array, offset = self._read_input(body, offset, tensor, served)
            if tensor.name in arrays:
                raise InvalidInput(f"input {tensor.name!r} is given twice")
            arrays[tensor.name] = array
        if offset != len(body):
            raise InvalidInput(
                f"{len(body) - offset} bytes behind the last tensor: the inputs account for "
                f"{offset - json_bytes} of {len(body) - json_bytes} binary bytes"
            )
        inputs, rows = served.rules.order(arrays)
        return document, inputs, self._read_terms(document, rows, served)

    def _read_input(
        self, body: Body, offset: int, tensor: InputTensor, served: ServedVersion
    ) -> tuple[NDArray[np.generic], int]:
        """Return the array of one input, and where the next binary one begins."""
        limits = self._limits
        shape = tensor.shape
        if len(shape) > limits.max_dims:
            raise TooLarge(
                f"input {tensor.name[:200]!r}: {len(shape)} axes, at most {limits.max_dims} allowed"
            )
        spec = served.rules.find(tensor.name, tensor.datatype, shape)
        rows = served.rules.rows_in(spec.name, shape)
        if rows > limits.max_rows:
            raise TooLarge(f"input {spec.name!r}: {rows} rows, at most {limits.max_rows} allowed")
        count = math.prod(shape)
        if count > limits.max_elements:
            raise TooLarge(
                f"input {spec.name!r}: {count} elements, at most {limits.max_elements} allowed"
            )
        parameters = tensor.parameters
        size = None
        if parameters is not None:
            size = parameters.binary_data_size
            if parameters.shared_memory_region is not None:
                raise Unsupported(f"input {spec.name!r}: shared memory is not supported")
        data = tensor.data
        if size is None:
            if data is msgspec.UNSET:
                raise InvalidInput(
                    f"input {spec.name!r}: expected 'data', or 'binary_data_size' in its parameters"
                )
            return parse_tensor(data, spec, shape, limits), offset
        if data is not msgspec.UNSET:
            raise InvalidInput(f"input {spec.name!r}: has both 'data' and 'binary_data_size'")
        if size < 0 or offset + size > len(body):
            raise InvalidInput(
                f"input {spec.name!r}: binary_data_size is {size}, but {len(body) - offset} "
                "bytes are left of the body"
            )
        return view_tensor(body, offset, size, spec, shape, limits), offset + size

    def _read_terms(self, document: InferRequest, rows: int, served: ServedVersion) -> Terms:
        """Return what was asked for beside the inputs."""
        parameters = document.parameters or _NO_PARAMETERS
        outputs, binary = wanted_outputs(
            document.outputs, bool(parameters.binary_data_output), served, self._limits
        )
        timeout = parameters.timeout or 0
        priority = parameters.priority or 0
        if not 0 <= timeout <= _MAX_TIMEOUT_US:
            raise InvalidInput(
                f"parameter 'timeout' {str(timeout)[:40]}: expected microseconds, "
                f"0 to {_MAX_TIMEOUT_US}"
            )
        if priority < 0:
            raise InvalidInput(f"parameter 'priority' {priority}: expected at least 0")
        return Terms(
            rows,
            outputs,
            ReplyForm(document.id, binary),
            timeout / 1e6 if timeout else None,
            priority,
            parameters.routing_key,
        )


def _request(
    inputs: tuple[NDArray[np.generic], ...],
    terms: Terms,
    served: ServedVersion,
    options: CallOptions,
) -> tuple[ScoreRequest, ReplyForm]:
    queue = served.group.settings.queue
    deadline = deadline_for(options.received, queue, options.timeout_s, terms.timeout_s)
    priority = terms.priority or options.priority or 0
    key = options.routing_key if terms.routing_key is None else terms.routing_key
    request = ScoreRequest(inputs, terms.rows, terms.outputs, deadline, priority, key)
    return request, terms.form
