"""Requests of the split benchmarks: several tensors in one binary body."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from anabranch_wire.tensors import datatype_of
from ctr_mlp import Body

__all__ = ["write_body"]


def write_body(
    path: Path, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
) -> Body:
    """Write a request of the binary extension, and return what posts it.

    Args:
        path: of the file.
        model: that it asks.
        inputs: by name.
        outputs: that are wanted, as binary tensors.
    """
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
