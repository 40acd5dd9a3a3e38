"""Damaged copies of valid inputs, the same ones in every run."""

import random
from collections.abc import Iterator, Sequence

from anabranch_testing.lengths import length

__all__ = ["fuzz_cases", "mutated"]


def fuzz_cases() -> int:
    """How many inputs a fuzz test tries: `ANABRANCH_FUZZ_CASES`, else 5,000; 100,000 in a soak."""
    return length(5_000, 100_000, "ANABRANCH_FUZZ_CASES")


def mutated(
    seeds: Sequence[bytes], tokens: Sequence[bytes], count: int, seed: int = 1
) -> Iterator[bytes]:
    """Yield `count` damaged copies.

    Args:
        seeds: valid inputs.
        tokens: words of the format, put in anywhere.
        count: number of copies.
        seed: of the dice.
    """
    dice = random.Random(seed)
    for _ in range(count):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
            _damage(data, seeds, tokens, dice)
        yield bytes(data)


def _damage(
    data: bytearray, seeds: Sequence[bytes], tokens: Sequence[bytes], dice: random.Random
) -> None:
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 1, 2, 4, 16, 64)))
    match dice.randrange(7):
        case 0:
            data[at:end] = dice.randbytes(end - at)
        case 1:
            del data[at:end]
        case 2:
            data[at:at] = dice.choice(tokens)
        case 3:
            data[at:end] = dice.choice(tokens)
        case 4:
            data[at:at] = data[at:end] * dice.choice((1, 2, 50))
        case 5:
            other = dice.choice(seeds)
            data[at:] = other[dice.randrange(len(other) + 1) :]
        case _:
            del data[at:]
