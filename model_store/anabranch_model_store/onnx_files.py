"""Whether an ONNX file may be opened at all: proven before any backend or analysis touches it.

Only the protobuf is read. External weights are looked at from outside: where they lie and whether
they are long enough.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from anabranch_model_store.containment import resolve_file
from anabranch_model_store.version_files import VersionFiles
from anabranch_wire.errors import InvalidInput, NotFound, TooLarge, Unavailable

__all__ = ["OnnxFile", "check_onnx_file", "external_locations"]

_MAX_BYTES: Final = 2**31 - 1
"""What a protobuf may have; more has to be external data."""
_BUILT_IN: Final = frozenset(("", "ai.onnx", "ai.onnx.ml", "com.microsoft"))
"""Operator domains of the standard and of ONNX Runtime itself."""
_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """An ONNX file that was found safe to open.

    Attributes:
        path: real path.
        external: real paths of the files that hold external weights.
        bytes: size of the file and of those.
    """

    path: Path
    external: tuple[Path, ...]
    bytes: int


def check_onnx_file(files: VersionFiles, name: str, *, allow_custom_ops: bool = False) -> OnnxFile:
    """Check the ONNX file `name` of a version.

    Args:
        files: of the version.
        name: path relative to the version folder.
        allow_custom_ops: whether operators of unknown domains are let through.

    Raises:
        NotFound: the version has no such file.
        InvalidInput: it is no ONNX protobuf, external weights are missing, cut off or outside the
            version, or operators are of unknown domains.
        TooLarge: more than 2 GiB without its external weights.
        Unavailable: it cannot be read.
    """
    path = files.path(name)
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise TooLarge(
            f"{name}: {size} bytes; an ONNX file has at most {_MAX_BYTES}, save its weights as "
            "external data"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unavailable(f"{name}: cannot be read: {error.strerror}") from None
    try:
        model = onnx.load_model_from_string(data)
        if not model.HasField("graph"):
            raise InvalidInput(f"{name}: no ONNX model: it holds no graph")
        if not allow_custom_ops:
            _check_domains(model, name)
        external = _external_files(model, files, path, name)
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InvalidInput(f"{name}: no ONNX model: {error}") from None
    return OnnxFile(path, external, size + sum(file.stat().st_size for file in external))


def external_locations(path: Path) -> tuple[str, ...]:
    """Return the files that an ONNX file wants beside it, by the names that it gives them.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it is no ONNX protobuf.
    """
    try:
        model = onnx.load(path, load_external_data=False)
        found = {
            _text(entry.value): None
            for tensor in _tensors(model)
            for entry in tensor.external_data
            if _text(entry.key) == "location"
        }
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFound(f"{path.name}: no such file") from None
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InvalidInput(f"{path.name}: no ONNX model: {error}") from None
    return tuple(found)


def _check_domains(model: onnx.ModelProto, name: str) -> None:
    """Refuse operators that are neither built in nor defined by the file itself."""
    local = {(_text(function.domain), _text(function.name)) for function in model.functions}
    used = {(_text(node.domain), _text(node.op_type)) for node in _nodes(model)}
    foreign = {
        f"{domain}.{operator}"[:_SHOWN]
        for domain, operator in used - local
        if domain not in _BUILT_IN
    }
    if foreign:
        shown = ", ".join(sorted(foreign)[:10])
        raise InvalidInput(
            f"{name}: custom operators {shown}; to let them through, set "
            "optimize: {allow: [custom_ops]} in model.yaml"
        )


def _external_files(
    model: onnx.ModelProto, files: VersionFiles, path: Path, name: str
) -> tuple[Path, ...]:
    """Return the files of external weights, each proven to be one of the version's."""
    allowed: frozenset[Path] | None = None
    found: dict[str, Path] = {}
    for tensor in _tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL and not tensor.external_data:
            continue
        if allowed is None:
            allowed = frozenset(files.path(file) for file in files.bytes)
        place = f"{name}: external data of {_text(tensor.name)[:_SHOWN]!r}"
        entries = {_text(entry.key): _text(entry.value) for entry in tensor.external_data}
        if len(entries) != len(tensor.external_data):
            raise InvalidInput(f"{place}: an entry stands there twice")
        location = entries.get("location", "")
        if location not in found:
            found[location] = _external_file(path, location, allowed, place)
        _check_extent(tensor, entries, found[location].stat().st_size, place)
    return tuple(found.values())


def _external_file(path: Path, location: str, allowed: frozenset[Path], place: str) -> Path:
    try:
        # Backends look for weights beside the real file, so that is where they have to be.
        file = resolve_file(path.parent, location)
    except NotFound:
        raise InvalidInput(f"{place}: {location[:_SHOWN]}: missing") from None
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error.message}") from None
    if file not in allowed:
        raise InvalidInput(f"{place}: {location[:_SHOWN]} is not listed in manifest.json")
    return file


def _check_extent(tensor: onnx.TensorProto, entries: dict[str, str], size: int, place: str) -> None:
    """Check that the file of `size` bytes holds what the tensor claims."""
    numbers = {key: entries.get(key, "0") for key in ("offset", "length")}
    for key, text in numbers.items():
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise InvalidInput(f"{place}: {key} {text[:_SHOWN]!r}; expected a number of bytes")
    try:
        bits = ir.DataType(tensor.data_type).bitwidth
    except (ValueError, TypeError):
        raise InvalidInput(f"{place}: elements of that type cannot be external") from None
    needed = max(int(numbers["length"]), (math.prod(tensor.dims) * bits + 7) // 8)
    begin = int(numbers["offset"])
    if begin + needed > size:
        raise InvalidInput(
            f"{place}: expected bytes {begin} to {begin + needed}, but the file has {size}"
        )


def _text(value: str | bytes) -> str:
    """Return a protobuf string; where its bytes are no UTF-8, protobuf hands out bytes.

    Raises:
        UnicodeDecodeError: they are not.
    """
    return value.decode() if isinstance(value, bytes) else value


def _blocks(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield everything that holds nodes: graphs, those of training, functions, and inner graphs."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    for training in model.training_info:
        waiting += (training.initialization, training.algorithm)
    while waiting:
        block = waiting.pop()
        yield block
        for node in block.node:
            for attribute in node.attribute:
                waiting += attribute.graphs
                if attribute.HasField("g"):
                    waiting.append(attribute.g)


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for block in _blocks(model):
        yield from block.node


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor that may lie outside the file."""
    for block in _blocks(model):
        attributes = [attribute for node in block.node for attribute in node.attribute]
        sparse: list[onnx.SparseTensorProto] = []
        if isinstance(block, onnx.GraphProto):
            yield from block.initializer
            sparse += block.sparse_initializer
        else:
            attributes += block.attribute_proto
        for attribute in attributes:
            yield attribute.t
            yield from attribute.tensors
            sparse += (attribute.sparse_tensor, *attribute.sparse_tensors)
        for tensor in sparse:
            yield tensor.values
            yield tensor.indices
