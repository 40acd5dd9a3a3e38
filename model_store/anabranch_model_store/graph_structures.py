"""What a graph is apart from its weights, as a digest."""

import hashlib
from pathlib import Path

import onnx

__all__ = ["structure_hash"]


def structure_hash(path: Path) -> str:
    """Return `sha256:` and the digest of an ONNX file without the numbers of its initializers.

    Names, types and shapes of weights count, as do all nodes and the constants in them. What an
    exporter says about itself, and documentation, does not.

    Args:
        path: a file that was found safe to open.
    """
    model = onnx.load(path, load_external_data=False)
    for name in ("producer_name", "producer_version", "doc_string", "model_version"):
        model.ClearField(name)
    for tensor in model.graph.initializer:
        bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        tensor.CopyFrom(bare)
    data = model.SerializeToString(deterministic=True)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
