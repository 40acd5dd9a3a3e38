"""A JSON request without its long arrays of numbers, which only the number parser needs to read.

To skip a megabyte of numbers costs a JSON decoder almost as much as to read them. So they are cut
out by a guess at where they end, and the small rest is decoded. The guess need not be right: what
was cut goes to the number parser, which refuses anything but one whole array, and a rest with too
few or too many brackets is no JSON; then the document is read as a whole.
"""

import re
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from anabranch_server.oip.binary import Body
from anabranch_server.oip.messages import InferRequest, InputTensor

__all__ = ["Outline", "outline_of"]

_KEY: Final = b'"data"'
_BEGIN: Final = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*\[[ \t\n\r]*(\[?)")
_SHORTEST: Final = 512


@dataclass(frozen=True, slots=True)
class Outline:
    """A document as it is decoded, and as it was sent.

    Attributes:
        text: as it is decoded: the same but for values that stand for others.
        source: as it was sent, at the front of a body.
        cuts: offset in `text` of a stand-in -> begin and end in `source` of its value. Where there
            are cuts, everything else is as it was sent; where there are none, everything has the
            length and the place of what it stands for.
    """

    text: bytes
    source: Body
    cuts: dict[int, tuple[int, int]]

    def restored(self, request: InferRequest) -> InferRequest | None:
        """Return `request`, decoded from `text`, with the data of `source`.

        Returns:
            None when something was cut that is no tensor's data, so that nobody would check it.
        """
        base = _address(self.text)
        unused = set(self.cuts)
        inputs: list[InputTensor] = []
        for tensor in request.inputs:
            data = tensor.data
            if data is not msgspec.UNSET:
                offset = _address(data) - base
                unused.discard(offset)
                data = self._original(data, offset)
            inputs.append(
                InputTensor(tensor.name, tensor.datatype, tensor.shape, tensor.parameters, data)
            )
        if unused:
            return None
        return InferRequest(inputs, request.id, request.outputs, request.parameters)

    def _original(self, data: msgspec.Raw, offset: int) -> msgspec.Raw:
        if not self.cuts:
            return msgspec.Raw(memoryview(self.source)[offset : offset + len(memoryview(data))])
        place = self.cuts.get(offset)
        return data if place is None else msgspec.Raw(memoryview(self.source)[slice(*place)])


def outline_of(body: Body, json_bytes: int) -> Outline | None:
    """Cut long arrays of numbers out of the document at the front of `body`; None if none is."""
    parts: list[bytes | bytearray] = []
    cuts: dict[int, tuple[int, int]] = {}
    taken = size = at = 0
    while (at := body.find(_KEY, at, json_bytes)) >= 0:
        at += len(_KEY)
        match = _BEGIN.match(body, at, json_bytes)
        if match is None:
            continue
        begin = body.index(b"[", at)
        # Numbers have no quotes. And no byte is looked at for two keys: this takes linear time.
        stop = body.find(b'"', begin, json_bytes)
        close = b"]]" if match[1] else b"]"
        end = body.find(close, begin, json_bytes if stop < 0 else stop) + len(close)
        if end - begin < _SHORTEST:
            continue
        parts += (body[taken:begin], b"0")
        size += begin - taken
        cuts[size] = (begin, end)
        size += 1
        taken = at = end
    if not cuts:
        return None
    parts.append(body[taken:json_bytes])
    return Outline(b"".join(parts), body, cuts)


def _address(buffer: bytes | msgspec.Raw) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data
