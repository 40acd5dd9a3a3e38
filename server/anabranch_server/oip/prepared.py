"""What a JSON head came to, remembered: a client's binary requests differ in the bytes behind it.

A remembered head holds for one `InputRules` object, which is one load of one version, and for
bodies of one size; nothing else of what was checked can differ.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.served import ServedVersion
from anabranch_server.oip.binary import Body
from anabranch_server.oip.calls import ReplyForm
from anabranch_server.oip.messages import InferRequest
from anabranch_server.recent import RecentlyUsed
from anabranch_wire.tensors import Datatype

__all__ = ["PreparedHead", "PreparedHeads", "Terms", "prepare"]

_MAX_HEAD_BYTES: Final = 8192
_HEADS: Final = 128
_CHECKED: Final[frozenset[Datatype]] = frozenset({"BOOL", "BYTES"})
"""Datatypes whose bytes must be looked at each time: not all of them are valid."""

_View = tuple[tuple[int, ...], np.dtype[np.generic], int, tuple[int, ...] | None]
"""Shape, dtype, offset in the body, and strides where one user is repeated for all rows."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What a request asks for beside its inputs.

    Attributes:
        rows: of the request.
        outputs: indexes of the wanted outputs; empty means all.
        form: of the answer.
        timeout_s: the request's own limit, if any.
        priority: the request's own; 0 if none.
        routing_key: the request's own, if any.
    """

    rows: int
    outputs: tuple[int, ...]
    form: ReplyForm
    timeout_s: float | None
    priority: int
    routing_key: str | int | None


class PreparedHead(msgspec.Struct, frozen=True, gc=False):
    """A request but for the bytes of its tensors.

    Attributes:
        rules: for which it was checked.
        body_bytes: size of the whole body.
        places: where each input lies, in the model's order; where there are features, each tensor
            as it was sent.
        terms: everything else.
        sent: names of the tensors, where there are features.
    """

    rules: InputRules
    body_bytes: int
    places: tuple[_View, ...]
    terms: Terms
    sent: tuple[str, ...] = ()

    def views(self, body: Body) -> tuple[NDArray[np.generic], ...]:
        """Return the inputs of a request in `body`, which has `body_bytes` bytes, in order.

        They are views of it, but for what features have in normal form alone.
        """
        views = [np.ndarray(shape, dtype, body, at, by) for shape, dtype, at, by in self.places]
        if not self.sent:
            return tuple(views)
        return self.rules.order(dict(zip(self.sent, views, strict=True)))[0]


class PreparedHeads:
    """Heads by their bytes. Any thread may use it: an entry never changes."""

    def __init__(self) -> None:
        self._heads = RecentlyUsed[tuple[int, bytes], PreparedHead](_HEADS)

    def find(self, rules: InputRules, text: bytes, body_bytes: int) -> PreparedHead | None:
        """Return what `text` came to for `rules` before a body of this size."""
        head = self._heads.get((id(rules), text))
        if head is None or head.rules is not rules or head.body_bytes != body_bytes:
            return None
        return head

    def keep(self, text: bytes, head: PreparedHead | None) -> None:
        """Remember `head` if it can come again."""
        if head is not None and len(text) <= _MAX_HEAD_BYTES:
            self._heads.put((id(head.rules), text), head)


def prepare(
    document: InferRequest, json_bytes: int, body_bytes: int, served: ServedVersion, terms: Terms
) -> PreparedHead | None:
    """Return what can be remembered of a request that was read and found good.

    Args:
        document: as it was read.
        json_bytes: its length.
        body_bytes: size of the whole body.
        served: the version it was checked for.
        terms: what it asks for.

    Returns:
        None when it holds data of its own, or bytes that need a look, or an id, a routing key or
        rows of different lengths, which say that the next request will have others.
    """
    if terms.form.id is not None or terms.routing_key is not None:
        return None
    places: dict[str, _View] = {}
    offset = json_bytes
    for tensor in document.inputs:
        size = tensor.parameters.binary_data_size if tensor.parameters is not None else None
        if size is None:
            return None
        spec = served.rules.find(tensor.name, tensor.datatype, tensor.shape)
        if spec.datatype in _CHECKED or served.rules.is_bag(spec.name):
            return None
        shape, strides = tensor.shape, None
        if (
            shape
            and not served.rules.has_features
            and served.rules.is_repeated(spec.name, shape[0], terms.rows)
        ):
            one: NDArray[np.generic] = np.empty(shape, spec.dtype)
            shape, strides = (terms.rows, *shape[1:]), (0, *one.strides[1:])
        places[spec.name] = (shape, spec.dtype, offset, strides)
        offset += size
    if served.rules.has_features:
        sent = tuple(places)
        return PreparedHead(served.rules, body_bytes, tuple(places.values()), terms, sent)
    ordered = tuple([places[spec.name] for spec in served.inputs])
    return PreparedHead(served.rules, body_bytes, ordered, terms)
