from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.pulse import Pulse

W0, W1 = WorkerId(0, 1), WorkerId(1, 1)


def _beaten(pulse: Pulse, beats: int, *answering: WorkerId) -> None:
    """Let seconds pass in which some workers answer."""
    for second in range(beats):
        number = pulse.beat(100.0 + second)
        for worker in answering:
            pulse.answer(worker, number)


def test_only_who_owes_an_answer_grows_silent() -> None:
    pulse = Pulse()
    pulse.greet(W0)
    pulse.greet(W1)

    _beaten(pulse, 12, W1)

    assert list(pulse.silent(10.0)) == [(W0, 11.0)]


def test_any_answer_ends_the_silence() -> None:
    pulse = Pulse()
    pulse.greet(W0)
    _beaten(pulse, 12)

    pulse.answer(W0, 3)

    assert list(pulse.silent(0.0)) == []


def test_the_time_before_a_worker_came_is_not_its_own() -> None:
    pulse = Pulse()
    _beaten(pulse, 50)

    pulse.greet(W0)

    assert list(pulse.silent(0.5)) == []


def test_a_supervisor_that_was_held_up_blames_nobody() -> None:
    pulse = Pulse()
    pulse.greet(W0)
    pulse.beat(0.0)

    pulse.beat(500.0)

    assert list(pulse.silent(2.5)) == []


def test_the_dead_are_forgotten() -> None:
    pulse = Pulse()
    pulse.greet(W0)
    _beaten(pulse, 12)

    pulse.forget(W0)
    pulse.answer(W0, 99)

    assert list(pulse.silent(0.0)) == []
