"""Requests of the split benchmarks: several tensors in one binary body, and many such bodies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from anabranch_wire.tensors import datatype_of
from ctr_mlp import Body

__all__ = ["write_bodies"]


def write_bodies(
    path: Path, model: str, requests: Sequence[Mapping[str, NDArray[Any]]], outputs: Sequence[str]
) -> Body:
    """Write requests of the same shapes, and return what posts them by turns.

    Args:
        path: of the first file; the others lie beside it.
        model: that they ask.
        requests: inputs by name, at least one.
        outputs: that are wanted, as binary tensors.
    """
    paths = [path.with_name(f"{path.name}.{number}") for number in range(len(requests))]
    bodies = [
        _write_body(each, model, inputs, outputs)
        for each, inputs in zip(paths, requests, strict=True)
    ]
    return replace(bodies[0], others=tuple(paths[1:]))


def _write_body(
    path: Path, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
) -> Body:
    """Write a request of the binary extension."""
    tensors = [array.tobytes() for array in inputs.values()]
    header = msgspec.json.encode(
        {
            "inputs": [
                {
                    "name": name,
                    "shape": list(array.shape),
                    "datatype": datatype_of(array.dtype),
                    "parameters": {"binary_data_size": len(tensor)},
                }
                for (name, array), tensor in zip(inputs.items(), tensors, strict=True)
            ],
            "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in outputs],
        }
    )
    path.write_bytes(b"".join([header, *tensors]))
    return Body(
        form="binary",
        rows=max(len(array) for array in inputs.values()),
        path=path,
        target=f"/v2/models/{model}/infer",
        headers={
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(header)),
        },
    )
