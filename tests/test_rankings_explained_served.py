"""A started server tells of rankings: its log explains them, its metrics count their values."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_testing import new_connections
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.spinning_models import write_spinning_model

ASKED = {
    "user": {"age": 20},
    "candidates": {
        "item_id": [5, 6, 7123456],
        "price": [1.0, 3.5, 2.0],
        "tags": [[1], [], [1, 2, 3, 4, 5]],
    },
    "explain": True,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository: Path = tmp_path_factory.mktemp("repository")
    scratch: Path = tmp_path_factory.mktemp("server")
    write_spinning_model(repository / "spin")
    settings = scratch / "anabranch.yaml"
    settings.write_text("explain_log: {sample: 1.0}\nsettle_s: 0\nworkers: 1\n")
    with started_server(repository, scratch, "--config", str(settings)) as running:
        yield running


def test_rankings_are_explained_in_the_log_and_counted_by_feature(server: RunningServer) -> None:
    url = f"http://{server.http}/v1/models/spin:rank"

    response = new_connections.post(
        url, json=ASKED, headers={"X-Request-Id": "by-test"}, timeout=30
    )

    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["ids"] == [7123456, 6, 5]
    assert answer["scores"] == [25.0, 23.5, 22.0]
    assert answer["explain"]["defaulted"] == ["spins", "shape"]
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    (line,) = [one for one in lines if one["event"] == "rank_explained"]
    assert (line["level"], line["request_id"], line["model"]) == ("info", "by-test", "spin")
    assert (line["protocol"], line["rows"]) == ("rank_http", 3)
    assert line["defaulted"] == ["spins", "shape"]
    assert line["stages_ms"] == answer["explain"]["stages_ms"]
    assert "7123456" not in json.dumps(line)
    samples = [
        line
        for line in new_connections.get(f"http://{server.metrics}/metrics").text.splitlines()
        if not line.startswith("#")
    ]
    for feature, counts in (("tags", (4, 0, 2)), ("spins", (1, 1, 0)), ("price", (3, 0, 0))):
        at = f'{{feature="{feature}",model="spin"}}'
        for name, count in zip(("values", "defaulted", "truncated"), counts, strict=True):
            assert f"anabranch_feature_{name}_total{at} {count}.0" in samples
    assert 'anabranch_rank_nan_scores_total{model="spin"} 0.0' in samples
