"""Members are counted as a JSON reader counts them, however the text is cut into blocks."""

import json
import random

import pytest

from anabranch_server.limits import Limits
from anabranch_server.ranking import json_sizes
from anabranch_server.ranking.json_requests import read_rank_json
from anabranch_server.ranking.json_sizes import LONG_BYTES, count_members
from anabranch_wire.errors import TooLarge


def members(document: dict[str, object]) -> int:
    return sum(len(value) for value in document.values() if isinstance(value, dict))


def made_up(dice: random.Random) -> dict[str, object]:
    """A document with quotes, backslashes, colons and brackets where they mean nothing."""
    letters = '":\\{}[],aü\n'

    def text() -> str:
        return "".join(dice.choices(letters, k=dice.randrange(6)))

    def value(depth: int) -> object:
        match dice.randrange(4 if depth < 3 else 2):
            case 0:
                return text()
            case 1:
                return dice.randrange(100)
            case 2:
                return [value(depth + 1) for _ in range(dice.randrange(3))]
            case _:
                return {text(): value(depth + 1) for _ in range(dice.randrange(3))}

    return {
        text(): {text(): value(0) for _ in range(dice.randrange(5))}
        if dice.random() < 0.7
        else value(0)
        for _ in range(dice.randrange(4))
    }


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_members_are_counted(
    monkeypatch: pytest.MonkeyPatch, block: int, ensure_ascii: bool
) -> None:
    monkeypatch.setattr(json_sizes, "_BLOCK", block)
    dice = random.Random(block)
    for _ in range(300):
        document = made_up(dice)
        text = json.dumps(document, ensure_ascii=ensure_ascii).encode()
        assert count_members(memoryview(text), 1000) == members(document), text


def test_counting_ends_early() -> None:
    text = b'{"user":{' + b'"a":1,' * 1_000_000 + b'"a":1}}'

    assert 10 < count_members(memoryview(text), 10) < 200_000


def test_a_long_body_with_very_many_features_is_not_decoded() -> None:
    names = ",".join(f'"f{number}":1' for number in range(100_000))
    body = ('{"candidates":{},"user":{' + names + "}}").encode()
    assert len(body) > LONG_BYTES

    with pytest.raises(TooLarge, match="too many features: at most 64 are allowed"):
        read_rank_json(body, Limits(max_tensors=64))


def test_a_long_body_with_few_features_is_read() -> None:
    rows = [{"ids": ["a:b", '"'], "weights": [1.0, 2.0]}] * 30_000
    body = json.dumps({"candidates": {"tags": rows}, "user": {"age": 1}}).encode()
    assert len(body) > LONG_BYTES

    request = read_rank_json(body, Limits(max_tensors=2))

    assert bytes(request.candidates["tags"]) == json.dumps(rows).encode()
    assert bytes(request.user["age"]) == b"1"


def test_very_many_outputs_are_not_decoded() -> None:
    body = b'{"candidates":{},"outputs":[' + b'"a",' * 100_000 + b'"a"]}'

    with pytest.raises(TooLarge, match="too many outputs: at most 64 are allowed"):
        read_rank_json(body, Limits(max_tensors=64))
