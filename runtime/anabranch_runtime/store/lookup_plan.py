"""Lookup plans: all lookups of a model in one call."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_runtime._native import LookupArguments
from anabranch_runtime.store.features import FeatureArrays, FeatureLookup, LookupBuffer
from anabranch_runtime.store.generation import Generation
from anabranch_runtime.store.integers import MOST_UINT64, expect_between

__all__ = ["LookupArguments", "LookupPlan", "instruction_sets"]


class LookupPlan(_native.LookupPlan):
    """All lookups of a model, compiled once; immutable, for any thread.

    `isa` names the instruction set it runs on. `run` is native, and so are `LookupArguments`:

    - `run(arguments, version, rows, *, users=0, user_index=None)` does every lookup of one batch at
      a store version. `user_index` (rows,) int64 says which user a row has; None where there is one
      at most. Columns that no lookup writes stay as they are. Raises `InvalidInput` where an id,
      a bag or a missing key is refused (names feature, row and value; the outputs are undefined
      then), and where there are more rows or users than the arrays have.
    - `arguments.bind(index, ids, bag=None, weights=None)` puts other arrays in the place of one
      feature's.
    - `arguments.keys` and `arguments.misses`, (lookups,) uint64, are counted up by `run`; whoever
      reads them may set them back.

    Arguments keep the arrays they are bound to, and belong to one thread at a time; a second one is
    refused with RuntimeError.
    """

    def __init__(
        self,
        generation: Generation,
        lookups: Sequence[FeatureLookup],
        buffers: Sequence[LookupBuffer],
        *,
        isa: str = "",
    ) -> None:
        """Compile.

        Args:
            generation: that it reads, and keeps.
            lookups: in the order that arguments have.
            buffers: that they write.
            isa: one of `instruction_sets()`; empty for the best.

        Raises:
            InvalidInput: they contradict each other or the tables; says how.
        """
        for lookup in lookups:
            _check_key(lookup, "padding_key", lookup.padding_key)
            _check_key(lookup, "missing_key", lookup.missing_key)
        super().__init__(generation.native, lookups, buffers, isa)

    def arguments(
        self, features: Sequence[FeatureArrays], outputs: Sequence[NDArray[Any]]
    ) -> LookupArguments:
        """Bind arrays, for any number of runs over what they hold at the time.

        Args:
            features: one per lookup.
            outputs: one per buffer: (rows or users, columns) float32 or float16; rows may lie
                apart. Lengths, offsets and a user index are not in their memory, and stay as they
                are while `run` reads them.

        Raises:
            InvalidInput: an array of another type or shape; names the feature.
        """
        return self.bound(features, outputs)


def instruction_sets() -> tuple[str, ...]:
    """Return what lookups can run on here, the best first: `avx512`, `avx2`, `portable`."""
    return tuple(_native.instruction_sets())


def _check_key(lookup: FeatureLookup, what: str, key: int | None) -> None:
    """Refuse a key of more than 64 bits; signed and unsigned ones are taken."""
    if key is not None:
        expect_between(f"feature {lookup.feature!r}: {what}", key, -(2**63), MOST_UINT64)
