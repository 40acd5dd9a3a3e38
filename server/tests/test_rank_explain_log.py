"""A share of rankings is explained in the log: names and numbers, never values or keys."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_testing.doors import FRESHNESS, door_context
from anabranch_testing.looked_up import KEYS, key_of, open_store, view_of
from anabranch_testing.ranked_doors import RankDoors, message_of, rank_doors
from anabranch_testing.ranked_models import ranked_lookups, ranked_lookups_plan

PLAN = ranked_lookups_plan()
KNOWN, UNKNOWN = key_of(3), key_of(KEYS + 1)
ASKED = {
    "user": {"clicks": [KNOWN, UNKNOWN]},
    "candidates": {"city": [KNOWN, KNOWN], "pair": [[KNOWN, KNOWN]] * 2, "tags": [[], [UNKNOWN]]},
}
LOGGER = "anabranch_server.ranking.admission"


def opened(folder: Path, share: float) -> Iterator[RankDoors]:
    models = {"ranked": ranked_lookups(folder / "model")}
    stores = {"ranked": view_of(open_store(folder / "store"))}
    with (
        door_context(
            models, stores=stores, rankings={"ranked": PLAN}, explain_sample=share
        ) as context,
        rank_doors(context) as doors,
    ):
        yield doors


@pytest.fixture
def all_logged(tmp_path: Path) -> Iterator[RankDoors]:
    yield from opened(tmp_path, 1.0)


@pytest.fixture
def some_logged(tmp_path: Path) -> Iterator[RankDoors]:
    yield from opened(tmp_path, 0.5)


def test_an_explanation_is_logged_without_values(
    all_logged: RankDoors, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    response = all_logged.json(ASKED, headers={"X-Request-Id": "by-http"})
    answer, _ = all_logged.message(message_of(ASKED, PLAN), metadata=(("x-request-id", "by-grpc"),))

    assert response.status == 200
    assert b"explain" not in response.body
    assert not answer.HasField("explain")
    by_http, by_grpc = [vars(record) for record in caplog.records if record.name == LOGGER]
    for record, protocol, request_id in (
        (by_http, "rank_http", "by-http"),
        (by_grpc, "rank_grpc", "by-grpc"),
    ):
        assert record["levelname"] == "INFO"
        assert record["event"] == "rank_explained"
        assert record["protocol"] == protocol
        assert record["request_id"] == request_id
        assert (record["model"], record["version"], record["delta"]) == ("ranked", 42, 17)
        assert record["step"] == FRESHNESS.step
        assert record["age_s"] > 0
        assert record["rows"] == 2
        assert record["missed"] == {"tags": 1, "clicks": 1}
        assert record["defaulted"] == ["x"]
        assert (record["bad_candidates"], record["nan_scores"]) == (0, 0)
        assert set(record["stages_ms"]) == {"decode", "queue", "lookup", "run"}
        assert str(UNKNOWN) not in str(record)
        assert str(KNOWN) not in str(record)


def test_a_share_is_logged(some_logged: RankDoors, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    for _ in range(100):
        assert some_logged.json(ASKED).status == 200

    logged = len([record for record in caplog.records if record.name == LOGGER])
    assert 20 <= logged <= 80  # beyond these once in 10^9 runs


def test_both_may_be_asked_for(all_logged: RankDoors, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    response = all_logged.json({**ASKED, "explain": True})

    assert b'"missed":{"tags":{"keys":1,"candidates":[1]},"clicks":{"keys":1' in response.body
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1
