import json
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch_model_store.golden.recording import record_golden
from anabranch_wire import golden
from anabranch_wire.errors import Conflict, InvalidInput, TooLarge


def request(**changes: Any) -> dict[str, Any]:
    return {
        "request": {"user": {"u": 1}, "candidates": {"item": np.array([1, 2])}},
        "keys": {"item": np.array([1, 2**64 - 1], np.uint64), "u": (np.int32(4),)},
        "scores": {"ctr": np.array([0.1, 0.5], np.float32)},
        **changes,
    }


def test_arrays_lists_and_numbers_of_any_kind_are_written(tmp_path: Path) -> None:
    class Tensor:
        def tolist(self) -> list[float]:
            return [0.25, 0.75]

    class Frame:
        def to_dict(self, orient: str) -> dict[str, Any]:
            assert orient == "list"
            return {"item": [3, 4]}

    written = record_golden(
        [
            request(),
            UserDict(request(scores={"ctr": Tensor()}, max_abs_diff=np.float32(0.5))),
            request(request={"candidates": Frame()}),
            golden.GoldenRequest(
                request=golden.GoldenRanking(candidates={"item": (1,)}), keys={"item": (1,)}
            ),
        ],
        tmp_path,
    )
    assert written == (
        "golden/0000.json",
        "golden/0001.json",
        "golden/0002.json",
        "golden/0003.json",
    )
    first = golden.decode((tmp_path / written[0]).read_bytes(), "x")
    assert first.keys == {"item": (1, 2**64 - 1), "u": (4,)}
    assert first.scores["ctr"] == (float(np.float32(0.1)), 0.5)
    second = golden.decode((tmp_path / written[1]).read_bytes(), "x")
    assert (second.scores["ctr"], second.max_abs_diff) == ((0.25, 0.75), 0.5)
    third = json.loads((tmp_path / written[2]).read_text())
    assert third["request"]["candidates"] == {"item": [3, 4]}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([1], "golden request 0: found list; expected a mapping with request, keys, scores"),
        ({"request": {}}, "golden request 0: request"),
        (request(scores={"ctr": [float("nan"), 1]}), "golden request 0.scores.ctr[0]: nan is no"),
        (request(keys={"item": [object()]}), "golden request 0.keys.item[0]: found object"),
        (request(keys={"item": [b"\xff"]}), "bytes that are no UTF-8"),
        (request(score={}), "golden request 0: score"),
    ],
)
def test_a_malformed_request_is_named_and_nothing_is_written(
    tmp_path: Path, wrong: Any, text: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        record_golden([wrong], tmp_path)
    assert text in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_replaced_when_that_is_asked_for(tmp_path: Path) -> None:
    record_golden([request()] * 3, tmp_path)
    with pytest.raises(Conflict, match="has 3 golden requests already"):
        record_golden([request()], tmp_path)
    assert record_golden([request()], tmp_path, replace=True) == ("golden/0000.json",)
    assert [one.name for one in (tmp_path / "golden").iterdir()] == ["0000.json"]


def test_a_published_version_gets_none(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    with pytest.raises(Conflict, match=r"is published \(manifest.json\)"):
        record_golden([request()], tmp_path)


def test_there_is_a_bound_and_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="more than 256 golden requests"):
        record_golden([request()] * 257, tmp_path)
    with pytest.raises(InvalidInput, match="there are no golden requests"):
        record_golden([], tmp_path)
    assert list(tmp_path.iterdir()) == []
