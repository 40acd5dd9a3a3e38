"""Embedding bags of fbgemm, torch and NumPy over the same tables, which are told dense ids.

Each answers the same requests as the store: for each table rows in bags, side by side. All weights
begin at a cache line.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lookup_material import aligned
from lookup_requests import Bags
from peers.store import peer

__all__ = ["Answer", "dict_and_take", "fbgemm", "take", "torch_bags"]

Answer = Callable[[], NDArray[np.float32]]
"""Answers all requests; returns what the last one gave, (rows, tables * dim)."""

_LINE_BYTES: Final = 64


def fbgemm(weights: Sequence[NDArray[np.float32]], requests: Sequence[Bags], rows: int) -> Answer:
    """Table-batched embedding of fbgemm's inference operators, f32, one call a request.

    Args:
        weights: tables (rows, dim).
        requests: what is asked.
        rows: bags of each request.

    Raises:
        Missing: fbgemm or torch is not here.
    """
    torch = _torch()
    peer("fbgemm_gpu")
    inference = peer("fbgemm_gpu.split_table_batched_embeddings_ops_inference")
    sparse = peer("fbgemm_gpu.split_embedding_configs").SparseType
    host = inference.EmbeddingLocation.HOST
    tables = [
        (f"t{number}", *table.shape, sparse.FP32, host) for number, table in enumerate(weights)
    ]
    batched = inference.IntNBitTableBatchedEmbeddingBagsCodegen(
        tables, device="cpu", output_dtype=sparse.FP32
    )
    batched.initialize_weights()
    batched.assign_embedding_weights(
        [(torch.from_numpy(table.view(np.uint8)), None) for table in weights]
    )
    if batched.weights_host.data_ptr() % _LINE_BYTES:
        raise RuntimeError("fbgemm's weights do not begin at a cache line")
    asked = [
        (torch.from_numpy(np.concatenate(bags.numbers)), torch.from_numpy(_offsets(bags, rows)))
        for bags in requests
    ]

    def answer() -> NDArray[np.float32]:
        pooled: Any = None
        with torch.inference_mode():
            for ids, offsets in asked:
                pooled = batched(ids, offsets)
        return _array(pooled)

    return answer


def torch_bags(
    weights: Sequence[NDArray[np.float32]], requests: Sequence[Bags], rows: int
) -> Answer:
    """`torch.nn.EmbeddingBag` for each table, and `cat`.

    Raises:
        Missing: torch is not here.
    """
    torch = _torch()
    modules = [
        torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(table), mode="sum", include_last_offset=True
        )
        for table in weights
    ]
    one_each = np.arange(rows + 1)
    asked = [
        [
            (torch.from_numpy(numbers), torch.from_numpy(offsets))
            for numbers, offsets in zip(
                bags.numbers, bags.offsets or [one_each] * len(weights), strict=True
            )
        ]
        for bags in requests
    ]

    def answer() -> NDArray[np.float32]:
        pooled: Any = None
        with torch.inference_mode():
            for request in asked:
                pooled = torch.cat(
                    [module(*ids) for module, ids in zip(modules, request, strict=True)], 1
                )
        return _array(pooled)

    return answer


def take(weights: Sequence[NDArray[np.float32]], requests: Sequence[Bags], rows: int) -> Answer:
    """`numpy.take` for each table; sums of bags by `numpy.add.reduceat`."""
    dims = [table.shape[1] for table in weights]
    ends = np.cumsum(dims)
    out = aligned(rows, int(ends[-1]))

    def answer() -> NDArray[np.float32]:
        for bags in requests:
            for feature, (table, numbers) in enumerate(zip(weights, bags.numbers, strict=True)):
                columns = out[:, ends[feature] - dims[feature] : ends[feature]]
                if bags.offsets is None:
                    np.take(table, numbers, axis=0, out=columns, mode="clip")
                else:
                    np.add.reduceat(table[numbers], bags.offsets[feature][:-1], axis=0, out=columns)
        return out

    return answer


def dict_and_take(
    weights: Sequence[NDArray[np.float32]],
    places: Sequence[Mapping[int, int]],
    requests: Sequence[Sequence[NDArray[np.uint64]]],
    rows: int,
) -> Answer:
    """A Python dict from keys to rows for each table, and `numpy.take`.

    Args:
        weights: tables (rows, dim).
        places: table -> key -> row.
        requests: request -> table -> keys (rows,).
        rows: of each request.
    """
    dims = [table.shape[1] for table in weights]
    ends = np.cumsum(dims)
    out = aligned(rows, int(ends[-1]))

    def answer() -> NDArray[np.float32]:
        for request in requests:
            for feature, (table, keys) in enumerate(zip(weights, request, strict=True)):
                known = places[feature]
                numbers = [known[key] for key in keys.tolist()]
                out[:, ends[feature] - dims[feature] : ends[feature]] = table[numbers]
        return out

    return answer


def _torch() -> Any:  # noqa: ANN401 - torch is not installed where types are checked
    torch = peer("torch")
    torch.set_num_threads(1)
    return torch


def _offsets(bags: Bags, rows: int) -> NDArray[np.int64]:
    """Offsets over the ids of all tables, table by table: (tables * rows + 1,)."""
    if bags.offsets is None:
        return np.arange(len(bags.numbers) * rows + 1)
    parts = [np.zeros(1, np.int64)]
    begin = 0
    for offsets in bags.offsets:
        parts.append(offsets[1:] + begin)
        begin += int(offsets[-1])
    return np.concatenate(parts)


def _array(tensor: Any) -> NDArray[np.float32]:  # noqa: ANN401 - as above
    array: NDArray[np.float32] = tensor.numpy()
    return array
