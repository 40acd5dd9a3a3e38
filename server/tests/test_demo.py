"""The demo ranks recorded users with what the server answers, and says when that is wrong."""

import io
from dataclasses import replace
from typing import cast

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from rich.console import Console

from anabranch_server import demo, demo_requests


@pytest.fixture(scope="module")
def rankings() -> list[demo.Ranking]:
    graph = demo_requests.demo_data() / "models" / demo_requests.MODEL / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(graph.read_bytes(), providers=["CPUExecutionProvider"])
    recording = demo_requests.load()
    users = iter(recording.users)

    def door(request: demo_requests.RawRanking) -> demo.Answer:
        user = next(users)
        assert request == recording.ranking(user)
        found = session.run(["click"], dict(recording.inputs(user)))[0]
        scores = cast(NDArray[np.float32], found)[:, 0]
        order = np.argsort(-scores, kind="stable")
        return demo.Answer(order, scores[order])

    return list(demo.rank(recording, door))


def printed(rankings: list[demo.Ranking]) -> str:
    out = io.StringIO()
    doors = {"HTTP": rankings, "gRPC": rankings}
    demo.print_rankings(Console(file=out, width=100, highlight=False), doors)
    return out.getvalue()


def test_rankings_are_those_recorded_at_training(rankings: list[demo.Ranking]) -> None:
    assert len(rankings) == 20
    for ranking in rankings:
        assert ranking.order.tolist()[:3] == list(ranking.user.order[:3])
        assert ranking.difference < 1e-6
        assert ranking.seconds > 0


def test_an_item_clicked_before_is_printed_first_with_its_probability(
    rankings: list[demo.Ranking],
) -> None:
    last = rankings[-1]
    item_id = last.user.affinity[0][0]

    text = printed(rankings)

    assert f"clicked before: item {item_id}" in text
    first = next(line for line in text.split(f"item {item_id}\n")[1].splitlines() if " 1 " in line)
    assert first.split()[:3] == ["1", str(item_id), f"{last.scores[item_id]:.3%}"]
    assert "clicked before" in first


def test_what_the_shop_showed_is_printed_with_its_rank(rankings: list[demo.Ranking]) -> None:
    shown = rankings[-1].user.shown.item_id
    rank = rankings[-1].order.tolist().index(shown) + 1

    line = [line for line in printed(rankings).splitlines() if "shown by the shop" in line][-1]

    assert line.split()[:2] == [str(rank), str(shown)]
    assert line.rstrip().endswith("not clicked")


def test_output_to_a_file_is_plain_and_narrow(rankings: list[demo.Ranking]) -> None:
    text = printed(rankings)

    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "20 requests of 80 items over HTTP" in text
    assert "20 requests of 80 items over gRPC" in text


def test_scores_that_differ_are_called_different(rankings: list[demo.Ranking]) -> None:
    wrong = replace(rankings[0], scores=rankings[0].scores + np.float32(1e-3))

    assert "scores as recorded at training" in printed(rankings)
    assert "scores NOT as recorded at training: largest difference 1e-03" in printed(
        [wrong, *rankings[1:]]
    )


def test_an_item_without_a_score_is_a_difference(rankings: list[demo.Ranking]) -> None:
    scores = rankings[0].scores.copy()
    scores[3] = np.nan

    assert replace(rankings[0], scores=scores).difference == np.inf


def test_users_without_past_clicks_leave_that_to_defaults() -> None:
    recording = demo_requests.load()
    with_clicks = next(user for user in recording.users if user.affinity)
    without = next(user for user in recording.users if not user.affinity)
    item_id, clicks = with_clicks.affinity[0]

    asked = recording.ranking(with_clicks)

    assert item_id in cast(list[int], asked.user["clicked_items"])
    assert asked.candidates["affinity"][item_id] == clicks
    assert "clicked_items" not in recording.ranking(without).user
    assert set(recording.ranking(without).candidates) == {"item_id"}
