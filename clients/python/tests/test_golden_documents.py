import json
from typing import Any

import pytest

from anabranch_wire import golden
from anabranch_wire.errors import InvalidInput


def plain(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "request": {
            "user": {"country": "de", "recent": [5, 9]},
            "candidates": {"item": [1, 2], "tags": [{"ids": ["a"], "weights": [0.5]}, {"ids": []}]},
        },
        "keys": {
            "country": [7],
            "recent": [[5, 9, 0]],
            "tags": [[3], []],
            "author": [[1, 2], [3, 4]],
        },
        "scores": {"ctr": [0.25, 0.5], "both": [[0.1, 0.2], [0.3, 0.4]]},
    }
    return {**document, **changes}


def decode(document: Any) -> golden.GoldenRequest:
    return golden.decode(json.dumps(document).encode(), "golden/0000.json")


def test_what_is_written_is_read_again() -> None:
    found = decode(plain(max_abs_diff=0.01))
    assert golden.decode(golden.encode(found, "x"), "y") == found
    assert (found.max_abs_diff, found.keys["country"]) == (0.01, (7,))
    assert decode(plain()).max_abs_diff == 1e-4


def test_keys_may_be_unsigned_or_signed_64_bits() -> None:
    found = decode(plain(keys={"query": [2**64 - 1]}))
    assert found.keys["query"] == (2**64 - 1,)
    with pytest.raises(InvalidInput, match="expected 64 bits"):
        decode(plain(keys={"query": [2**64]}))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"request": {}}, "request: missing key 'candidates'"),
        ({"request": {"candidates": {}, "users": {}}}, "request"),
        ({"request": {"candidates": {"item": 1}}}, "request.candidates['item']"),
        ({"keys": {"a": 5}}, "keys['a']"),
        ({"keys": {"a": [True]}}, "keys['a'][0]: found True; expected a key"),
        ({"keys": {"a": [[1, None]]}}, "keys['a'][0][1]: found None; expected a key"),
        ({"keys": {"a": [[[[1]]]]}}, "keys['a'][0][0][0]: found a list; expected a key"),
        ({"scores": {"ctr": ["x"]}}, "scores['ctr'][0]: found 'x'; expected a number"),
        ({"scores": {"ctr": [[[1.0]]]}}, "scores['ctr'][0][0]: found a list; expected a number"),
        ({"keys": {}, "scores": {}}, "expected keys or scores"),
        ({"max_abs_diff": -1}, "max_abs_diff"),
        ({"max_diff": 1}, "max_diff"),
    ],
)
def test_a_malformed_file_is_named_with_the_place_in_it(change: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(plain(**change))
    assert caught.value.message.startswith("golden/0000.json: ")
    assert text in caught.value.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"request": NaN}', b"\xff", b"[" * 100_000])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^golden/0000\.json: "):
        golden.decode(data, "golden/0000.json")


def test_numbers_that_json_does_not_have_are_not_written() -> None:
    found = decode(plain())
    wrong = golden.GoldenRequest(request=found.request, scores={"ctr": (float("nan"), 0.5)})
    with pytest.raises(InvalidInput, match="nan is no finite number"):
        golden.encode(wrong, "golden/0000.json")
