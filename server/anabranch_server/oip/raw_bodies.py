"""A body that is one tensor and nothing else: for models with one input, one row [Triton].

The shape is the model's, with one row; at most one other axis may be open and follows from the
size. A BYTES body is the one element itself, without a length. All outputs come back in binary.
"""

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.oip.binary import Body, view_tensor
from anabranch_server.oip.calls import CallOptions, ReplyForm
from anabranch_server.oip.deadlines import deadline_for
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec

__all__ = ["read_raw_body"]


def read_raw_body(
    body: Body, served: ServedVersion, options: CallOptions, limits: Limits
) -> tuple[ScoreRequest, ReplyForm]:
    """Decode a body without JSON.

    Raises:
        InvalidInput: the model has several inputs or a feature, or the size fits no shape with one
            row.
        TooLarge: the string is longer than `limits.max_string_bytes`.
    """
    if len(served.inputs) != 1:
        raise InvalidInput(
            f"a body without JSON carries one tensor, but model {served.snapshot.model!r} has "
            f"{len(served.inputs)} inputs: expected JSON"
        )
    if served.rules.has_features:
        raise InvalidInput(
            f"a body without JSON carries one tensor, but model {served.snapshot.model!r} takes a "
            "feature: expected JSON"
        )
    spec = served.inputs[0]
    shape = _one_row_shape(spec, served.model.rows.input_axes[0], len(body))
    array: NDArray[np.generic]
    if spec.datatype == "BYTES":
        if len(body) > limits.max_string_bytes:
            raise TooLarge(
                f"input {spec.name!r}: {len(body)} bytes, at most {limits.max_string_bytes} allowed"
            )
        array = np.empty(shape, np.object_)
        array.fill(bytes(body))
    else:
        array = view_tensor(body, 0, len(body), spec, shape, limits)
    inputs, rows = served.rules.order({spec.name: array})
    deadline = deadline_for(options.received, served.group.settings.queue, options.timeout_s)
    request = ScoreRequest(inputs, rows, (), deadline, options.priority or 0, options.routing_key)
    return request, ReplyForm(None, (True,) * len(served.outputs))


def _one_row_shape(spec: TensorSpec, row_axis: int | None, size: int) -> tuple[int, ...]:
    shape = list(spec.shape)
    if row_axis is not None:
        shape[row_axis] = 1
    open_axes = [axis for axis, length in enumerate(shape) if length == -1]
    known = 1
    for length in shape:
        known *= length if length != -1 else 1
    if spec.datatype == "BYTES":
        if known != 1:
            raise InvalidInput(
                f"input {spec.name!r} has {known} BYTES elements: expected JSON before the tensor"
            )
        return tuple(1 if length == -1 else length for length in shape)
    if len(open_axes) > 1:
        raise InvalidInput(
            f"input {spec.name!r} has several open axes {list(spec.shape)}: expected JSON with its "
            "shape before the tensor"
        )
    if open_axes:
        unit = known * spec.dtype.itemsize
        if unit == 0 or size % unit:
            raise InvalidInput(
                f"input {spec.name!r}: expected a multiple of {unit} bytes for one row of "
                f"{spec.datatype} {list(spec.shape)}, got {size}"
            )
        shape[open_axes[0]] = size // unit
    return tuple(shape)
