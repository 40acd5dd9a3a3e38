"""A finished ticket as a ModelInferResponse, always with raw contents."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.served import ServedVersion
from anabranch_server.oip.binary import pack_bytes
from anabranch_wire.oip import ModelInferResponse
from anabranch_wire.snapshots import Snapshot

__all__ = ["ResponseEncoder"]

_SNAPSHOTS: Final = 64


class ResponseEncoder:
    """Serialises answers; the part that all answers of a snapshot share is made once.

    Safe from any thread.
    """

    def __init__(self) -> None:
        self._head = lru_cache(maxsize=_SNAPSHOTS)(_head)

    def encode(
        self,
        served: ServedVersion,
        request_id: str,
        wanted: tuple[int, ...],
        outputs: Sequence[NDArray[np.generic]],
    ) -> bytes:
        """Return the serialised answer.

        Args:
            served: the version that computed it.
            request_id: `id` of the request, returned as it came.
            wanted: indexes of `outputs` in the model; empty when they are all of them.
            outputs: one array per wanted output.
        """
        response = ModelInferResponse(id=request_id)
        specs = [served.outputs[index] for index in wanted] if wanted else served.outputs
        for spec, array in zip(specs, outputs, strict=True):
            response.outputs.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
            response.raw_output_contents.append(
                pack_bytes(array) if spec.datatype == "BYTES" else array.tobytes()
            )
        # Two serialised parts of a message, one behind the other, are the message.
        return self._head(served.snapshot) + response.SerializeToString()


def _head(snapshot: Snapshot) -> bytes:
    head = ModelInferResponse(model_name=snapshot.model, model_version=str(snapshot.version))
    head.parameters["delta"].int64_param = snapshot.delta
    return head.SerializeToString()
