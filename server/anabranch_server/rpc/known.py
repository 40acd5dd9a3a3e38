"""What a message came to, remembered: a client's requests differ in the bytes of their tensors.

A message is known if every byte outside its raw contents is one that was read and found good
before, in a message of the same size for the same load of the same version; nothing else of what
was checked can differ then.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.served import ServedVersion
from anabranch_server.rpc.wire import DELIMITED, walk
from anabranch_wire.oip import ModelInferRequest
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["Contents", "KnownMessage", "KnownMessages", "learn"]

_RAW_CONTENTS: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_MAX_FIXED_BYTES: Final = 8192
_MAX_SIZES: Final = 256
_MAX_OF_SIZE: Final = 4
_LOOKED_AT: Final[frozenset[Datatype]] = frozenset({"BOOL", "BYTES"})
"""Datatypes whose bytes must be checked each time: not all of them are valid."""

_View = tuple[tuple[int, ...], np.dtype[np.generic], int, tuple[int, ...]]
"""Shape, dtype, offset in the message, strides."""


class Contents(msgspec.Struct, frozen=True, gc=False):
    """What a message asks for.

    Attributes:
        inputs: one array per model input, in the model's order.
        rows: of the request.
        outputs: indexes of the wanted outputs; empty means all.
        timeout_s: the request's own limit, if any.
        priority: the request's own; 0 if none.
        routing_key: the request's own, if any.
    """

    inputs: tuple[NDArray[np.generic], ...]
    rows: int
    outputs: tuple[int, ...]
    timeout_s: float | None
    priority: int
    routing_key: str | int | None = None


class KnownMessage(msgspec.Struct, frozen=True, gc=False):
    """A message but for the bytes of its tensors.

    Attributes:
        model: model name.
        selector: version as sent.
        rules: for which it was checked.
        fixed: offset and bytes of everything outside the raw contents.
        views: where each input lies, in the model's order; where there are features, each tensor
            as it was sent.
        like: the contents that were read, without inputs.
        sent: names of the tensors, where there are features.
    """

    model: str
    selector: str
    rules: InputRules
    fixed: tuple[tuple[int, bytes], ...]
    views: tuple[_View, ...]
    like: Contents
    sent: tuple[str, ...] = ()

    def contents(self, body: bytes) -> Contents:
        """Return the contents of a message that is known to be like this one.

        The inputs are read-only views of `body`, which they keep alive, but for what features have
        in normal form alone.
        """
        like = self.like
        inputs = tuple(
            [np.ndarray(shape, dtype, body, at, by) for shape, dtype, at, by in self.views]
        )
        if self.sent:
            inputs, _ = self.rules.order(dict(zip(self.sent, inputs, strict=True)))
        return Contents(inputs, like.rows, like.outputs, like.timeout_s, like.priority)


class KnownMessages:
    """Known messages by size. Any thread may use it: what is stored never changes."""

    def __init__(self) -> None:
        self._by_size: dict[int, tuple[KnownMessage, ...]] = {}

    def find(self, body: bytes) -> KnownMessage | None:
        """Return what is known of `body`; its rules may be those of a version that has gone."""
        for known in self._by_size.get(len(body), ()):
            for at, part in known.fixed:
                if not body.startswith(part, at):
                    break
            else:
                return known
        return None

    def keep(self, body: bytes, known: KnownMessage) -> None:
        """Remember what `body` came to, in place of the same message for other rules."""
        if len(self._by_size) >= _MAX_SIZES:
            self._by_size.clear()
        others = [other for other in self._by_size.get(len(body), ()) if other.fixed != known.fixed]
        self._by_size[len(body)] = (known, *others[: _MAX_OF_SIZE - 1])


def learn(
    body: bytes, message: ModelInferRequest, served: ServedVersion, contents: Contents
) -> KnownMessage | None:
    """Return what can be remembered of a message that was read and found good.

    Args:
        body: the message.
        message: as it was parsed.
        served: the version it was checked for.
        contents: what it came to.

    Returns:
        None when it has typed contents, bytes that need a look each time, no rows, or an id, a
        routing key or rows of different lengths, which say that the next message will have others.
    """
    specs = served.inputs
    if message.id or not message.raw_input_contents or not contents.rows:
        return None
    if contents.routing_key is not None or any(spec.datatype in _LOOKED_AT for spec in specs):
        return None
    if any(served.rules.is_bag(tensor.name) for tensor in message.inputs):
        return None
    places = [
        (begin, end)
        for number, kind, begin, end in walk(body)
        if (number, kind) == (_RAW_CONTENTS, DELIMITED)
    ]
    fixed = _outside(body, places)
    if sum(len(part) for _, part in fixed) > _MAX_FIXED_BYTES:
        return None
    begins = {tensor.name: begin for tensor, (begin, _) in zip(message.inputs, places, strict=True)}
    if served.rules.has_features:
        views, sent = _as_sent(message, served.rules, begins), tuple(begins)
    else:
        views, sent = _as_ordered(specs, contents.inputs, begins), ()
    return KnownMessage(
        model=message.model_name,
        selector=message.model_version,
        rules=served.rules,
        fixed=fixed,
        views=views,
        sent=sent,
        like=Contents((), contents.rows, contents.outputs, contents.timeout_s, contents.priority),
    )


def _as_ordered(
    specs: Sequence[TensorSpec],
    inputs: Sequence[NDArray[np.generic]],
    begins: Mapping[str, int],
) -> tuple[_View, ...]:
    return tuple(
        (array.shape, array.dtype, begins[spec.name], array.strides)
        for spec, array in zip(specs, inputs, strict=True)
    )


def _as_sent(
    message: ModelInferRequest, rules: InputRules, begins: Mapping[str, int]
) -> tuple[_View, ...]:
    views: list[_View] = []
    for tensor in message.inputs:
        shape = tuple(tensor.shape)
        dtype = rules.find(tensor.name, tensor.datatype, shape).dtype
        strides = np.empty(shape, dtype).strides
        views.append((shape, dtype, begins[tensor.name], strides))
    return tuple(views)


def _outside(body: bytes, places: Sequence[tuple[int, int]]) -> tuple[tuple[int, bytes], ...]:
    """Offset and bytes of the parts of `body` around `places`."""
    begins = [0, *(end for _, end in places)]
    ends = [*(begin for begin, _ in places), len(body)]
    return tuple(
        (begin, body[begin:end]) for begin, end in zip(begins, ends, strict=True) if begin < end
    )
