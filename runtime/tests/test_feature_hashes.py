"""Hashes against their reference packages, and their vectors in every place that shows them."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pytest
import xxhash
from farmhash import fingerprint64 as _fingerprint64

from anabranch_runtime.ranking.hashes import hash_integers, hash_strings
from anabranch_runtime.ranking.plans import HashFunction

ROOT = Path(__file__).parents[2]
VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "hash_vectors.json").read_text(encoding="utf-8")
)
FUNCTIONS: list[HashFunction] = ["xxh64", "murmur3_x64_128_low", "farmhash_fingerprint64"]
# Its stub knows strings alone.
fingerprint64: Callable[[bytes], int] = _fingerprint64  # pyright: ignore[reportAssignmentType]
REFERENCES: dict[HashFunction, Callable[[bytes, int], int]] = {
    "xxh64": xxhash.xxh64_intdigest,
    "murmur3_x64_128_low": lambda data, seed: mmh3.hash64(
        data, seed % 2**32, x64arch=True, signed=False
    )[0],
    "farmhash_fingerprint64": lambda data, seed: fingerprint64(data),
}
SEEDS = (0, 1, 0x9747B28C, 2**32 - 1, 2**64 - 1)
INT64_ENDS = (-(2**63), 2**63 - 1)


def signed(hashes: list[int]) -> list[int]:
    return [value - 2**64 if value >= 2**63 else value for value in hashes]


def drawn_strings(count: int, seed: int) -> list[str]:
    """Strings of every length to 300 and some to 8 KiB, in one to four bytes a character."""
    draw = random.Random(seed)
    alphabets = [
        "ab",
        "0123456789abcdef",
        "äöüßéñ",
        "日本語中文",
        "🙂🚀🌊",
        "".join(map(chr, range(128))),
    ]
    strings = ["x" * length for length in range(301)] + [""]
    while len(strings) < count:
        length = draw.choice([draw.randrange(8), draw.randrange(40), draw.randrange(301)])
        if draw.randrange(1000) == 0:
            length = draw.randrange(8192)
        strings.append("".join(draw.choices(draw.choice(alphabets), k=length)))
    return strings


@pytest.mark.parametrize("function", FUNCTIONS)
def test_hundred_thousand_strings_have_the_keys_of_the_reference_package(
    function: HashFunction,
) -> None:
    strings = drawn_strings(100_000, seed=1)
    reference = REFERENCES[function]

    for place, seed in enumerate(SEEDS):
        part = strings[:301] + strings[301 + place :: len(SEEDS)]
        expected = [reference(text.encode(), seed) for text in part]
        assert hash_strings(function, part, seed=seed).tolist() == signed(expected)
        buckets = (7, 1000, 2**20, 10**9 + 7, 2**63 + 1)[place]
        keys = hash_strings(function, part, seed=seed, num_buckets=buckets)
        assert keys.tolist() == signed([value % buckets for value in expected])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_hundred_thousand_integers_have_the_keys_of_their_decimal_text(
    function: HashFunction,
) -> None:
    draw = random.Random(2)
    integers = [*INT64_ENDS, 0, 1, -1, 9, 10, -10, 99, 100]
    integers += [
        sign * 10**power + off for power in range(19) for off in (-1, 0) for sign in (1, -1)
    ]
    while len(integers) < 100_000:
        integers.append(draw.randrange(-(2**63), 2**63) >> draw.randrange(64))
    reference = REFERENCES[function]

    keys = hash_integers(function, np.array(integers), seed=3)
    rests = hash_integers(function, np.array(integers), seed=3, num_buckets=1000)

    expected = [reference(str(value).encode(), 3) for value in integers]
    assert keys.tolist() == signed(expected)
    assert rests.tolist() == [value % 1000 for value in expected]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bytes_are_hashed_as_they_are(function: HashFunction) -> None:
    data = [b"\x00", b"a\x00b", b"\xff\xfe", "größe".encode()]

    keys = hash_strings(function, data)

    assert keys.tolist() == signed([REFERENCES[function](each, 0) for each in data])


def test_vectors_are_what_is_computed() -> None:
    for vector in VECTORS:
        function, seed, text = vector["function"], vector["seed"], vector["text"]
        value = REFERENCES[function](text.encode(), seed)
        assert vector["hash"] == f"{value:016x}"
        assert hash_strings(function, [text], seed=seed).tolist() == [vector["key"]]
        keys = hash_strings(function, [text], seed=seed, num_buckets=1000)
        assert keys.tolist() == [vector["modulo_1000"]]


def test_the_native_tests_have_the_same_vectors() -> None:
    header = ROOT / "runtime/native/tests/features/hash_vectors.h"
    text = header.read_text(encoding="utf-8")
    pattern = (
        r'kHashVectors|HashFunction::k(\w+),\s+(\d+)U,\s+"((?:[^"]|"\s+")*)",\s+0x([0-9a-f]{16})'
    )
    names = {
        "Xxh64": "xxh64",
        "Murmur3X64128Low": "murmur3_x64_128_low",
        "FarmhashFingerprint64": "farmhash_fingerprint64",
    }

    found = [
        (names[name], int(seed), re.sub(r'"\s+"', "", string), value)
        for name, seed, string, value in re.findall(pattern, text)
        if name
    ]

    assert found == [(v["function"], v["seed"], v["text"], v["hash"]) for v in VECTORS]


def test_the_page_shows_the_vectors() -> None:
    page = (ROOT / "docs/features.md").read_text(encoding="utf-8")
    row = re.compile(
        r"^\| `(\w+)` \| (\d+) \| `(.*)` \| `([0-9a-f]{16})` \| (-?\d+) \| (\d+) \|$", re.M
    )

    shown = [
        {
            "function": function,
            "seed": int(seed),
            "text": json.loads(text),
            "hash": value,
            "key": int(key),
            "modulo_1000": int(rest),
        }
        for function, seed, text, value, key, rest in row.findall(page)
    ]

    assert len(shown) >= 30
    assert [vector for vector in VECTORS if len(vector["text"]) <= 40] == shown


def test_numbers_that_are_none_of_64_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="seed: -1"):
        hash_strings("xxh64", ["a"], seed=-1)
    with pytest.raises(ValueError, match="num_buckets: 18446744073709551616"):
        hash_integers("xxh64", np.array([1]), num_buckets=2**64)
    with pytest.raises(ValueError, match="expected one axis of int64"):
        hash_integers("xxh64", np.array([[1]]))
    with pytest.raises(ValueError, match="expected one axis of int64"):
        hash_integers("xxh64", np.array([1], np.uint64))
    with pytest.raises(ValueError, match="'md5' is not available"):
        hash_strings("md5", ["a"])  # type: ignore[arg-type]  # what is tested
