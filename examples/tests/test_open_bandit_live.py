"""Training without torch: scores are those of the ONNX file, gradients those of differences."""

import datetime
import socket
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import open_bandit
from anabranch_server import demo_requests
from open_bandit.features import Inputs, impression_inputs
from open_bandit.impressions import Impressions, Items, read_impressions, read_items
from open_bandit.live import report
from open_bandit.live.click_model import gradient, score
from open_bandit.live.hours import Hour, hours
from open_bandit.live.proof import prove
from open_bandit.live.replay import NextHour, Published
from open_bandit.live.training import Trainer
from open_bandit.live.visitors import Answer, Point, Visitors
from open_bandit.live.weights import DENSE, TABLES, Weights, read_weights, write_weights
from open_bandit.quality import log_loss
from open_bandit.split import SPLIT

DATA = Path(open_bandit.__file__).parent / "data"
ONNX = (
    demo_requests.demo_data() / "models" / demo_requests.MODEL / "1" / "model.onnx"
).read_bytes()


@pytest.fixture(scope="module")
def items() -> Items:
    return read_items(DATA / "bts-item_context.csv")


@pytest.fixture(scope="module")
def log() -> Impressions:
    return read_impressions(DATA / "bts-all.csv.gz").split(SPLIT)[1]


@pytest.fixture(scope="module")
def rows(log: Impressions, items: Items) -> tuple[Inputs, np.ndarray]:
    """Clicked rows, and rows of users with past clicks, who have bags, among others."""
    chosen = np.flatnonzero((log.clicks > 0) | (log.affinities.sum(axis=1) > 1))
    chosen = np.union1d(chosen[:40], np.flatnonzero(log.clicks > 0)).astype(np.int64)
    part = log.rows(chosen)
    return impression_inputs(part, items), part.clicks


def served(model: bytes, inputs: Inputs) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["click"], dict(inputs))[0][:, 0]


def in_float64(weights: Weights) -> Weights:
    generator = np.random.default_rng(3)  # larger than trained ones, so that all paths count
    return {
        name: w.astype(np.float64) + generator.normal(0, 0.3, w.shape)
        for name, w in weights.items()
    }


def test_scores_are_those_of_onnx_runtime(log: Impressions, items: Items) -> None:
    inputs = impression_inputs(log, items)

    found = score(read_weights(ONNX), inputs)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, served(ONNX, inputs), rtol=0, atol=1e-7)


def test_the_gradient_is_that_of_finite_differences(rows: tuple[Inputs, np.ndarray]) -> None:
    inputs, clicks = rows
    weights = in_float64(read_weights(ONNX))
    found = gradient(weights, inputs, clicks)
    generator = np.random.default_rng(5)

    def loss() -> float:
        return log_loss(clicks, score(weights, inputs))

    assert found.loss == pytest.approx(loss(), rel=1e-12)
    for name in (*TABLES, *DENSE):
        if name in TABLES:
            keys, values = found.rows[name]
            places = [(int(k), int(generator.integers(8))) for k in keys[:6]]
            gradients = [values[at, place[1]] for at, place in enumerate(places)]
        else:
            places = [
                tuple(int(generator.integers(size)) for size in weights[name].shape)
                for _ in range(6)
            ]
            gradients = [found.dense[name][place] for place in places]
        for place, expected in zip(places, gradients, strict=True):
            kept, step = weights[name][place], 1e-6
            weights[name][place] = kept + step
            above = loss()
            weights[name][place] = kept - step
            below = loss()
            weights[name][place] = kept
            # Second-order terms, and 1e-16 / 1e-6 of cancellation.
            assert (above - below) / (2 * step) == pytest.approx(expected, rel=1e-5, abs=1e-8), name


def test_rows_without_a_gradient_change_no_loss(rows: tuple[Inputs, np.ndarray]) -> None:
    inputs, clicks = rows
    weights = in_float64(read_weights(ONNX))
    before = score(weights, inputs)

    for name, (keys, _) in gradient(weights, inputs, clicks).rows.items():
        others = np.setdiff1d(np.arange(len(weights[name])), keys)
        weights[name][others] = 99.0

    np.testing.assert_array_equal(score(weights, inputs), before)


def test_a_step_changes_what_it_says_and_nothing_else(rows: tuple[Inputs, np.ndarray]) -> None:
    trainer, before = Trainer(read_weights(ONNX)), read_weights(ONNX)

    changed = trainer.step(*rows)

    assert trainer.steps == 1
    assert changed.row_count == sum(map(len, changed.rows.values())) > 0
    for name in TABLES:
        different = np.flatnonzero((trainer.weights[name] != before[name]).any(axis=1))
        assert changed.rows.get(name, np.array([])).tolist() == different.tolist()
    assert changed.dense == DENSE


def test_training_lowers_the_loss_on_what_it_learns(rows: tuple[Inputs, np.ndarray]) -> None:
    inputs, clicks = rows
    trainer = Trainer(read_weights(ONNX))
    before = log_loss(clicks, trainer.score(inputs))

    for _ in range(20):
        trainer.step(inputs, clicks)

    assert log_loss(clicks, trainer.score(inputs)) < 0.8 * before


def test_written_weights_are_served(rows: tuple[Inputs, np.ndarray], tmp_path: Path) -> None:
    trainer = Trainer(read_weights(ONNX))
    trainer.step(*rows)

    write_weights(ONNX, trainer.weights, tmp_path / "model.onnx")

    model = (tmp_path / "model.onnx").read_bytes()
    np.testing.assert_allclose(served(model, rows[0]), trainer.score(rows[0]), rtol=0, atol=1e-6)
    assert np.abs(served(model, rows[0]) - served(ONNX, rows[0])).max() > 1e-4


def test_another_model_is_refused() -> None:
    renamed = ONNX.replace(b"wide.weight", b"wild.weight")

    with pytest.raises(ValueError, match=r"the model has no weights wide\.weight"):
        read_weights(renamed)


def test_hours_hold_the_whole_log_in_order(log: Impressions, items: Items) -> None:
    found = list(hours(log, items))

    assert len(found) == 48
    assert sum(map(len, found)) == len(log)
    assert [hour.begin for hour in found] == sorted(hour.begin for hour in found)
    assert found[0].begin == datetime.datetime(2019, 11, 29, tzinfo=datetime.UTC)
    assert found[-1].newest == log.times[-1]
    for hour in found:
        assert hour.begin.timestamp() <= hour.newest < hour.begin.timestamp() + 3600
    np.testing.assert_array_equal(np.concatenate([hour.clicks for hour in found]), log.clicks)


def test_hours_without_impressions_are_left_out(log: Impressions, items: Items) -> None:
    kept = log.rows(np.flatnonzero((log.times < log.times[0] + 60) | (log.times > 1575154800)))

    assert len(list(hours(kept, items))) == 2


BEFORE = np.full((2, 80), 0.25, np.float32)
AFTER = np.full((2, 80), 0.5, np.float32)


def published(hour: Hour, point: Point, seconds: float | None = 0.5) -> Published:
    next_hour = NextHour(0.3, 0.2, 0.4, impressions=10) if point.delta else None
    return Published(hour, next_hour, 3, point, 7, 100.0, seconds, AFTER)


def answer(point: Point, scores: np.ndarray, step: int | None, event_time: float | None) -> Answer:
    return Answer(101.0, 1, point, step, event_time, scores[1])


@pytest.fixture(scope="module")
def hour(log: Impressions, items: Items) -> Hour:
    return next(hours(log, items))


def test_answers_of_the_trainer_s_scores_are_proven(hour: Hour) -> None:
    answers = [
        answer(Point(1, 0), BEFORE, None, 1.0),
        answer(Point(1, 1), AFTER, 7, hour.newest),
    ]

    proof = prove(answers, BEFORE, [published(hour, Point(1, 1))])

    assert proof.holds
    assert (proof.answers, proof.difference) == (2, 0.0)


@pytest.mark.parametrize(
    ("point", "scores", "step", "late"),
    [
        (Point(1, 1), BEFORE, 7, 0.0),  # rows of before under the name of the delta
        (Point(1, 1), AFTER * np.nan, 7, 0.0),  # an item was not ranked
        (Point(1, 1), AFTER, 6, 0.0),  # step of another delta
        (Point(1, 1), AFTER, 7, 1.0),  # moment of another delta
        (Point(1, 2), AFTER, 7, 0.0),  # a delta that was not published
    ],
)
def test_other_answers_are_not(
    hour: Hour, point: Point, scores: np.ndarray, step: int, late: float
) -> None:
    answers = [answer(point, scores, step, hour.newest + late)]

    assert not prove(answers, BEFORE, [published(hour, Point(1, 1))]).holds


def test_an_answer_of_an_earlier_delta_after_a_later_one_is_found(hour: Hour) -> None:
    answers = [
        answer(Point(1, 1), AFTER, 7, hour.newest),
        answer(Point(1, 0), BEFORE, None, None),
    ]

    proof = prove(answers, BEFORE, [published(hour, Point(1, 1))])

    assert proof.backwards == 1
    assert not proof.holds


def test_lines_and_days_say_what_was_published(hour: Hour) -> None:
    all_published = [published(hour, Point(1, 1)), published(hour, Point(2, 0), seconds=None)]

    lines = [" ".join(report.line(each).split()) for each in all_published]
    table = [" ".join(each.split()) for each in report.days(all_published)]

    assert lines[0] == "29 Nov 00:00 77 0 0.300000 -> 0.200000 3 1+1 0.50"
    assert lines[1].endswith(" 2 none")
    assert table[2] == "29 Nov 77 0 1 3 0.200000 0.400000 0.50 0.50"
    assert table[3].startswith("all 77 0 1 3 ")


def test_the_verdict_names_failures_and_differences(hour: Hour) -> None:
    proof = prove([answer(Point(1, 1), BEFORE, 7, hour.newest)], BEFORE, [])

    said = "\n".join(report.verdict([published(hour, Point(1, 1))], proof, Counter(Overloaded=2)))

    assert "3 rankings of 80 items meanwhile, 2 Overloaded failed" in said
    assert "are NOT those of the trainer" in said
    assert "newest impression in the model: 29 November 2019, 00:" in said


def test_calls_that_fail_are_counted_by_kind_and_asked_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        visitors = Visitors(f"http://127.0.0.1:{closed.getsockname()[1]}", demo_requests.load())
        with visitors:
            end_s = time.monotonic() + 30
            while visitors.failures.total() < 2 and time.monotonic() < end_s:
                time.sleep(0.01)

            assert visitors.first_answer(Point(1, 0), timeout_s=0.0) is None

    assert visitors.failures["Unavailable"] == visitors.failures.total() >= 2
    assert visitors.answers == ()
