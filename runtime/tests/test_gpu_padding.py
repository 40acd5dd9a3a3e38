"""Which shapes graphs are run with on a GPU."""

import numpy as np
import pytest

from anabranch_runtime.backends.gpu.blocks import BlockLayout
from anabranch_runtime.backends.gpu.padding import Buckets, Padding


def test_rows_go_to_the_next_bucket_and_beyond_the_largest_to_a_multiple_of_it() -> None:
    buckets = Buckets((1, 8, 64))

    assert [buckets.at_least(rows) for rows in (0, 1, 2, 8, 9, 64)] == [1, 1, 8, 8, 64, 64]
    assert [buckets.at_least(rows) for rows in (65, 128, 129)] == [128, 128, 192]


@pytest.mark.parametrize("sizes", [(), (0, 1), (2, 1), (1, 1)])
def test_buckets_rise(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"executors\.buckets .*: expected rising numbers"):
        Buckets(sizes)


def test_each_kind_of_rows_has_buckets_of_its_own() -> None:
    padding = Padding(
        ("row", "user", None), ("row",), {"row": Buckets((4, 16)), "user": Buckets((1, 2))}
    )

    assert padding.padded(((5, 3), (2, 7), (9,))) == ((16, 3), (2, 7), (9,))
    assert padding.rows(((5, 3), (2, 7), (9,))) == {"row": 5, "user": 2}


def test_tensors_of_a_block_are_aligned_and_apart() -> None:
    layout = BlockLayout.of(
        [
            ("a", np.dtype(np.float32), (3,)),
            ("b", np.dtype(np.int64), (0, 4)),
            ("c", np.dtype(np.int8), (257,)),
        ]
    )

    assert [one.offset for one in layout.tensors] == [0, 256, 256]
    assert layout.nbytes == 768
    assert [one.address for one in layout.at(1 << 20)] == [(1 << 20) + o for o in (0, 256, 256)]
