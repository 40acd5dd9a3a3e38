"""Writing a graph with other weights: the same file, byte by byte, with other numbers in it.

Invariant: what is not replaced is copied by the kernel, so that memory is that of the new weights,
whatever else the graph holds. Numbers that lay beside the graph lie beside the new one too.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.containment import resolve_file
from anabranch_model_store.deltas.graph_tensors import GraphTensor, GraphTensors, raw_bytes
from anabranch_model_store.onnx_files import external_locations
from anabranch_model_store.segment_cache import link_or_copy

__all__ = ["write_graph_with"]

Array = NDArray[np.generic]

_RAW_DATA: Final = b"\x4a"
_EXTERNAL_DATA: Final = b"\x6a"
_INITIALIZER: Final = b"\x2a"
_GRAPH: Final = b"\x3a"
"""Tags of fields that hold bytes: TensorProto.raw_data and .external_data, GraphProto.initializer,
ModelProto.graph."""

_NEW_WEIGHTS: Final = ".updated"
"""Suffix of the file with new numbers of weights that lie beside the graph."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of the old file, as they are."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


_Piece = _Span | bytes | memoryview


def write_graph_with(graph: GraphTensors, weights: Mapping[str, Array], folder: Path) -> Path:
    """Write a graph with new weights into a folder, under its own name; return the file.

    Files of weights beside it are linked, or copied where that cannot be.

    Args:
        graph: the old one.
        weights: initializers of it, of their shapes and types.
        folder: where the new one goes.

    Raises:
        NotFound, InvalidInput: a file beside the old graph is missing, or out of its folder.
        OSError: the folder cannot be written.
    """
    path = folder / graph.path.name
    beside = [name for name in weights if graph.tensors[name].external is not None]
    places = _write_beside(weights, beside, folder / f"{path.name}{_NEW_WEIGHTS}")
    if any(tensor.external is not None for tensor in graph.tensors.values()):
        _link_externals(graph.path.resolve(), folder)
    with graph.path.open("rb") as old, path.open("xb") as new:
        for piece in _pieces(graph, old, weights, places):
            if isinstance(piece, _Span):
                _copy(old, new, piece)
            else:
                new.write(piece)
    return path


def _pieces(
    graph: GraphTensors,
    old: BinaryIO,
    weights: Mapping[str, Array],
    places: Mapping[str, bytes],
) -> Iterator[_Piece]:
    """Yield the new file in pieces."""
    inner: list[_Piece] = []
    at = graph.graph.body
    changed = sorted((graph.tensors[name] for name in weights), key=lambda one: one.field.begin)
    for tensor in changed:
        inner.append(_Span(at, tensor.field.begin))
        inner += _tensor(tensor, old, weights[tensor.name], places.get(tensor.name))
        at = tensor.field.end
    inner.append(_Span(at, graph.graph.end))
    yield _Span(0, graph.graph.begin)
    yield _GRAPH + _varint(sum(map(_size, inner)))
    yield from inner
    yield _Span(graph.graph.end, graph.size)


def _tensor(tensor: GraphTensor, old: BinaryIO, weight: Array, place: bytes | None) -> list[_Piece]:
    """Return an initializer with other numbers; `place` says where, if they are not in it."""
    kept = [os.pread(old.fileno(), one.end - one.begin, one.begin) for one in tensor.kept]
    pieces: list[_Piece] = [b"".join(kept)]
    if place is not None:
        pieces.append(place)
    else:
        data = raw_bytes(weight)
        pieces += [_RAW_DATA + _varint(len(data)), data]
    return [_INITIALIZER + _varint(sum(map(_size, pieces))), *pieces]


def _write_beside(weights: Mapping[str, Array], names: list[str], path: Path) -> dict[str, bytes]:
    """Write numbers to a file of their own; return by name how a tensor says where they are."""
    places: dict[str, bytes] = {}
    if not names:
        return places
    with path.open("xb") as file:
        for name in names:
            data = raw_bytes(weights[name])
            entries = {"location": path.name, "offset": str(file.tell()), "length": str(len(data))}
            places[name] = b"".join(_entry(key, value) for key, value in entries.items())
            file.write(data)
    return places


def _entry(key: str, value: str) -> bytes:
    """Return one entry of TensorProto.external_data."""
    body = b"".join(
        tag + _varint(len(text)) + text
        for tag, text in ((b"\x0a", key.encode()), (b"\x12", value.encode()))
    )
    return _EXTERNAL_DATA + _varint(len(body)) + body


def _link_externals(path: Path, folder: Path) -> None:
    """Give the files beside a graph a name beside the new one."""
    for location in external_locations(path):
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link_or_copy(resolve_file(path.parent, location), target)


def _copy(old: BinaryIO, new: BinaryIO, span: _Span) -> None:
    new.flush()
    at = span.begin
    while at < span.end:
        sent = os.sendfile(new.fileno(), old.fileno(), at, span.end - at)
        if not sent:
            raise OSError(f"{old.name} was cut short")
        at += sent
    new.seek(0, os.SEEK_END)


def _size(piece: _Piece) -> int:
    return piece.size if isinstance(piece, _Span) else len(piece)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
