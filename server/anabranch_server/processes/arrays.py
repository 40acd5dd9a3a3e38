"""Arrays as they cross processes: the raw bytes of the Open Inference Protocol."""

from dataclasses import replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from anabranch_server.limits import Limits
from anabranch_server.oip.binary import pack_bytes, view_tensor
from anabranch_server.processes.plans import ArrayPlan
from anabranch_wire.errors import Corrupt, InvalidInput
from anabranch_wire.tensors import DATATYPES, Datatype, TensorSpec

__all__ = ["array_of", "array_plan"]

_OURS: Final = replace(Limits(), max_string_bytes=2**31 - 1)
"""What comes from another process of the server is as large as the model's author made it."""


def array_plan(array: NDArray[np.generic], datatype: Datatype) -> ArrayPlan:
    """Return `array` as a plan carries it.

    Args:
        array: elements of `datatype`; `bytes` objects for BYTES.
        datatype: its name in the protocol; BF16 and UINT16 share a NumPy dtype.
    """
    if datatype == "BYTES":
        data = pack_bytes(array)
    else:
        data = np.ascontiguousarray(array, DATATYPES[datatype]).tobytes()
    return ArrayPlan(datatype, array.shape, data)


def array_of(plan: ArrayPlan) -> NDArray[np.generic]:
    """Return the array of a plan; a read-only view of its bytes, except for BYTES.

    Raises:
        Corrupt: the bytes are no such array.
    """
    if plan.datatype not in DATATYPES or any(size < 0 for size in plan.shape):
        raise Corrupt(f"array of {plan.datatype[:40]} {list(plan.shape)}: there is no such thing")
    spec = TensorSpec("array", cast(Datatype, plan.datatype), plan.shape)
    try:
        return view_tensor(plan.data, 0, len(plan.data), spec, plan.shape, _OURS)
    except InvalidInput as error:
        raise Corrupt(error.message) from None
