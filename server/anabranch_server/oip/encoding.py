"""Outputs as bytes: a JSON head, and the binary tensors behind it.

What does not change between the answers of one snapshot is formatted once per choice of outputs.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.served import ServedVersion
from anabranch_server.oip.binary import pack_bytes
from anabranch_server.oip.calls import ReplyForm
from anabranch_server.oip.json_tensors import dump_tensor
from anabranch_server.recent import RecentlyUsed
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

__all__ = ["InferEncoder", "Reply"]

_HEADS: Final = 128
"""Callers choose the outputs, so the number of heads is theirs too."""

_MAX_TEXTS: Final = 256
_json: Final = msgspec.json.encode

_Key = tuple[int, tuple[int, ...], tuple[bool, ...]]
"""Identity of a snapshot, wanted outputs, and which of them are binary."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer, ready for a transport.

    Attributes:
        head: the JSON.
        tensors: binary tensors in order; empty when all data is in the JSON.
        size: bytes of head and tensors.
    """

    head: bytes
    tensors: list[bytes]
    size: int


class InferEncoder:
    """Encodes answers. Belongs to one thread: it remembers heads."""

    def __init__(self) -> None:
        self._heads = RecentlyUsed[_Key, _Head](_HEADS)

    def encode(
        self,
        served: ServedVersion,
        wanted: tuple[int, ...],
        form: ReplyForm,
        outputs: tuple[NDArray[np.generic], ...],
    ) -> Reply:
        """Encode one answer.

        Args:
            served: the version that computed it.
            wanted: indexes of the outputs; empty means all.
            form: how the caller wants them.
            outputs: one array per wanted output; copied.

        Raises:
            InvalidInput: a string output that is not UTF-8 was wanted in JSON.
        """
        snapshot = served.snapshot
        key = (id(snapshot), wanted, form.binary)
        head = self._heads.get(key)
        if head is None or head.snapshot is not snapshot:
            head = _Head(served, wanted, form.binary)
            self._heads.put(key, head)
        return head.fill(form.id, outputs)


class _Head:
    """The JSON of an answer with holes for the id, shapes, and sizes or data."""

    __slots__ = ("_binary", "_format", "_holes", "_is_plain", "_specs", "_texts", "snapshot")

    def __init__(
        self, served: ServedVersion, wanted: tuple[int, ...], binary: tuple[bool, ...]
    ) -> None:
        self.snapshot: Snapshot = served.snapshot
        all_outputs = served.outputs
        self._specs = tuple([all_outputs[index] for index in wanted]) if wanted else all_outputs
        self._binary = binary
        self._is_plain = all(binary) and all(spec.datatype != "BYTES" for spec in self._specs)
        self._texts: dict[tuple[tuple[int, ...], ...], bytes] = {}
        self._format = self._formatted([len(spec.shape) for spec in self._specs])
        self._holes = 1 + sum(len(spec.shape) + 1 for spec in self._specs)

    def fill(self, request_id: str | None, outputs: tuple[NDArray[np.generic], ...]) -> Reply:
        if not self._is_plain or request_id is not None:
            return self._fill(request_id, outputs)
        # With nothing but fixed-width tensors behind it, the JSON follows from the shapes.
        shapes = tuple([array.shape for array in outputs])
        text = self._texts.get(shapes)
        if text is None:
            reply = self._fill(None, outputs)
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            self._texts[shapes] = reply.head
            return reply
        tensors = [array.tobytes() for array in outputs]
        return Reply(text, tensors, len(text) + sum(map(len, tensors)))

    def _fill(self, request_id: str | None, outputs: tuple[NDArray[np.generic], ...]) -> Reply:
        values: list[object] = [b'"id":%b,' % _json(request_id) if request_id is not None else b""]
        tensors: list[bytes] = []
        size = 0
        for array, in_binary, spec in zip(outputs, self._binary, self._specs, strict=True):
            values += array.shape
            if not in_binary:
                values.append(dump_tensor(array, spec))
                continue
            tensor = pack_bytes(array) if spec.datatype == "BYTES" else array.tobytes()
            values.append(len(tensor))
            tensors.append(tensor)
            size += len(tensor)
        text = self._format
        if len(values) != self._holes:  # a graph may answer with a rank other than it declares
            text = self._formatted([array.ndim for array in outputs])
        head = text % tuple(values)
        return Reply(head, tensors, size + len(head))

    def _formatted(self, ranks: list[int]) -> bytes:
        snapshot = self.snapshot
        outputs = b",".join(
            _output_format(spec, rank, in_binary)
            for spec, rank, in_binary in zip(self._specs, ranks, self._binary, strict=True)
        )
        return (
            b'{"model_name":%b,"model_version":"%d",%%b"parameters":{"delta":%d},"outputs":[%b]}'
            % (_literal(snapshot.model), snapshot.version, snapshot.delta, outputs)
        )


def _output_format(spec: TensorSpec, rank: int, in_binary: bool) -> bytes:
    shape = b",".join([b"%d"] * rank)
    data = b'"parameters":{"binary_data_size":%d}' if in_binary else b'"data":%b'
    return b'{"name":%b,"datatype":%b,"shape":[%b],%b}' % (
        _literal(spec.name),
        _json(spec.datatype),
        shape,
        data,
    )


def _literal(text: str) -> bytes:
    """`text` as JSON that stands for itself in a format."""
    return _json(text).replace(b"%", b"%%")
