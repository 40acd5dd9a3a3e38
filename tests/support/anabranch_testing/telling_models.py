"""Models whose answers tell which version computed them, published as a trainer publishes."""

import tempfile
from pathlib import Path
from typing import Final

from anabranch_publish import publish_version
from anabranch_testing.graphs import write_graph

__all__ = ["INPUT_WIDTH", "publish_telling"]

INPUT_WIDTH: Final = 4


def publish_telling(model_dir: Path, version: int) -> None:
    """Publish a version whose every score is its own number.

    x is [N, 4] FP32, y is [N, 1] FP32; numbers up to 2^24 are exact.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = write_graph(
            Path(scratch),
            "telling (float[N, 4] x) => (float[N, 1] y) "
            "<float[4, 1] zero = {0.0, 0.0, 0.0, 0.0}, "
            f"float[1] number = {{{version}.0}}> "
            "{ product = MatMul(x, zero) y = Add(product, number) }",
        )
        publish_version(model_dir, path, version=version)
