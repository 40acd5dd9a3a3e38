"""Both doors offer what they ranked; what has no row in a table or default is told apart."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch_server.feature_log import FeatureLog, LogResult
from anabranch_testing.doors import door_context
from anabranch_testing.looked_up import KEYS, key_of, open_store, view_of
from anabranch_testing.ranked_doors import RankDoors, message_of, rank_doors
from anabranch_testing.ranked_models import ranked_lookups, ranked_lookups_plan

pq = pytest.importorskip("pyarrow.parquet")

PLAN = ranked_lookups_plan()
KNOWN, OTHER, UNKNOWN = key_of(3), key_of(4), key_of(KEYS + 1)
ASKED: dict[str, Any] = {
    "user": {"clicks": [KNOWN, OTHER]},
    "candidates": {
        "city": [KNOWN, OTHER, KNOWN],
        "x": [1.0, 3.0, 2.0],
        "pair": [[KNOWN, OTHER], [OTHER, OTHER], [KNOWN, KNOWN]],
        "tags": [
            {"ids": [KNOWN, UNKNOWN], "weights": [0.5, 2.0]},
            {"ids": [], "weights": []},
            {"ids": [OTHER], "weights": [1.0]},
        ],
    },
    "top_k": 1,
}
WRONG = {**ASKED, "candidates": {**ASKED["candidates"], "x": [1.0]}}


class Silent:
    """Counts nothing."""

    def feature_log(self, model: str, result: LogResult, requests: int) -> None:
        """Forget it."""


@pytest.fixture
def log(tmp_path: Path) -> FeatureLog:
    return FeatureLog(tmp_path / "log", 1.0, 0, Silent())


@pytest.fixture
def doors(tmp_path: Path, log: FeatureLog) -> Iterator[RankDoors]:
    models = {"ranked": ranked_lookups(tmp_path / "model")}
    stores = {"ranked": view_of(open_store(tmp_path / "store"))}
    with (
        door_context(models, stores=stores, rankings={"ranked": PLAN}) as context,
        rank_doors(replace(context, feature_log=log)) as opened,
    ):
        yield opened


def logged(tmp_path: Path, log: FeatureLog) -> list[dict[str, Any]]:
    assert log.close(30.0)
    (path,) = (tmp_path / "log" / "ranked" / "42").iterdir()
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def test_both_doors_log_the_same_rows(tmp_path: Path, log: FeatureLog, doors: RankDoors) -> None:
    assert doors.json(ASKED, headers={"X-Request-Id": "by-http"}).status == 200
    doors.message(message_of(ASKED, PLAN), metadata=(("x-request-id", "by-grpc"),))

    rows = logged(tmp_path, log)

    by_door = _by_request(rows)
    assert by_door.keys() == {"by-http", "by-grpc"}
    assert by_door["by-http"] == by_door["by-grpc"]
    first, second, third = by_door["by-http"]
    assert first["feature_pair"] == [KNOWN, OTHER]
    assert first["feature_tags"] == [KNOWN, UNKNOWN]
    assert first["weights_tags"] == [0.5, 2.0]
    assert second["feature_tags"] == second["weights_tags"] == []
    assert [row["feature_clicks"] for row in by_door["by-http"]] == [[KNOWN, OTHER]] * 3
    assert [row["missed_tags"] for row in by_door["by-http"]] == [True, False, False]
    assert [row["missed_clicks"] for row in by_door["by-http"]] == [False] * 3
    assert [row["rank"] for row in by_door["by-http"]] == [3, 1, 2]
    assert [row["answered"] for row in by_door["by-http"]] == [False, True, False]
    assert third["score"] == third["output_score"] == 2.0
    assert (third["version"], third["delta"]) == (42, 17)


def test_what_was_refused_is_not_logged(tmp_path: Path, log: FeatureLog, doors: RankDoors) -> None:
    assert doors.json(WRONG).status == 400
    assert doors.json(ASKED).status == 200

    assert len(logged(tmp_path, log)) == 3


def _by_request(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of each request, without what differs from request to request."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        own = {name: value for name, value in row.items() if name not in ("request_id", "time")}
        found.setdefault(row["request_id"], []).append(own)
    return found
