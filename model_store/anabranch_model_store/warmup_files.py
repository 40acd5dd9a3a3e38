"""Requests that a version brings along: to warm executors, and to prove answers where it says so.

`warmup/*.npz` holds one array for each input and, as `expected.<output>`, answers to compare with;
`warmup/*.json` holds one request of the Open Inference Protocol.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.containment import read_inside
from anabranch_model_store.npz_files import MAX_BYTES, read_npz
from anabranch_model_store.version_files import VersionFiles
from anabranch_model_store.wanted_inputs import WantedInputs, check_shape
from anabranch_runtime import json_numbers
from anabranch_runtime.features import FeatureInput
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

__all__ = ["Array", "Sample", "read_samples"]

Array = NDArray[np.generic]

_EXPECTED: Final = "expected."
_MAX_DEPTH: Final = 32
_MAX_ELEMENTS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One request, and what it must give.

    Attributes:
        name: of its file, relative to the version folder.
        inputs: one array for each input of the model, as declared; features by one of the sets of
            parts that they may be sent by.
        expected: answers by output; may be empty.
    """

    name: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array] = field(default_factory=dict)


class _JsonTensor(msgspec.Struct):
    name: str
    shape: tuple[int, ...]
    datatype: str
    data: msgspec.Raw = msgspec.Raw()


class _JsonRequest(msgspec.Struct):
    inputs: tuple[_JsonTensor, ...]


def read_samples(
    files: VersionFiles,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    features: Sequence[FeatureInput] = (),
) -> tuple[Sample, ...]:
    """Return the warm-up requests of a version, in the order of their names.

    Args:
        files: of the version.
        inputs: what the model takes.
        outputs: what it gives.
        features: what it takes beside `inputs`, to look rows up by.

    Raises:
        InvalidInput: a file is damaged, or a request does not fit the model; the message names
            file, tensor, what was found and what was expected.
        TooLarge: a file or array passes a limit.
    """
    wanted = WantedInputs(inputs, features)
    samples: list[Sample] = []
    for name in files.below("warmup", ".npz", ".json"):
        if name.endswith(".npz"):
            samples.append(_from_npz(files, name, wanted, outputs))
        else:
            samples.append(_from_json(files, name, wanted))
    return tuple(samples)


def _from_npz(
    files: VersionFiles, name: str, wanted: WantedInputs, outputs: Sequence[TensorSpec]
) -> Sample:
    arrays = read_npz(files.path(name), name)
    answers = {_EXPECTED + spec.name: spec for spec in outputs}
    given: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    for key, array in arrays.items():
        if key in wanted.specs:
            given[key] = _fitting(array, wanted.specs[key], f"{name}: input {key!r}")
        elif key in answers:
            spec = answers[key]
            expected[spec.name] = _fitting(array, spec, f"{name}: {key!r}")
        elif wanted.has_part(key, array, name):
            given[key] = array
        else:
            raise InvalidInput(
                f"{name}: {key[:120]!r} is neither an input nor {_EXPECTED}<output>; "
                f"inputs are {wanted.names}, outputs {[spec.name for spec in outputs]}"
            )
    return Sample(name, wanted.complete(given, name), expected)


def _from_json(files: VersionFiles, name: str, wanted: WantedInputs) -> Sample:
    text = read_inside(files.folder, name, MAX_BYTES)
    try:
        json_numbers.scan(text, _MAX_DEPTH, _MAX_ELEMENTS, MAX_BYTES)
        request = msgspec.json.decode(text, type=_JsonRequest)
    except (json_numbers.JsonError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{name}: no request in JSON: {error}") from None
    given: dict[str, Array] = {}
    for tensor in request.inputs:
        place = f"{name}: input {tensor.name[:120]!r}"
        part = wanted.part(tensor.name, tensor.datatype, tensor.shape, name)
        spec = wanted.specs.get(tensor.name, part)
        if spec is None or tensor.name in given:
            reason = "no such input" if spec is None else "is there twice"
            raise InvalidInput(f"{place}: {reason}; expected {wanted.names}")
        if tensor.datatype != spec.datatype:
            raise InvalidInput(f"{place}: found {tensor.datatype[:40]!r}; expected {spec.datatype}")
        if part is None:
            check_shape(tensor.shape, spec, place)
        given[tensor.name] = _elements(tensor, spec, place).reshape(tensor.shape)
    return Sample(name, wanted.complete(given, name))


def _elements(tensor: _JsonTensor, spec: TensorSpec, place: str) -> Array:
    count = 1
    for size in tensor.shape:
        count *= size
    if 2 * count > len(tensor.data) + 1:
        raise InvalidInput(f"{place}: too little data for shape {list(tensor.shape)}")
    try:
        if spec.datatype != "BYTES":
            return json_numbers.parse(memoryview(tensor.data), spec.datatype, count, _MAX_DEPTH)
        texts = msgspec.json.decode(tensor.data, type=list[str])
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{place}: {error}") from None
    if len(texts) != count:
        raise InvalidInput(f"{place}: {len(texts)} strings; expected {count}")
    return _objects([text.encode() for text in texts])


def _fitting(array: Array, spec: TensorSpec, place: str) -> Array:
    """Return an array of an .npz file as the tensor that `spec` declares."""
    if spec.datatype == "BYTES" and array.dtype.kind in "US":
        texts = array.ravel().tolist()
        elements = [text.encode() if isinstance(text, str) else text for text in texts]
        array = _objects(elements).reshape(array.shape)
    if array.dtype != spec.dtype:
        raise InvalidInput(
            f"{place}: found elements of {array.dtype.name}; expected {spec.dtype.name} "
            f"({spec.datatype})"
        )
    check_shape(array.shape, spec, place)
    return array


def _objects(elements: list[bytes]) -> Array:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array
