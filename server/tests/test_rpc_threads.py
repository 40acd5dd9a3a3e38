import threading

import pytest

from anabranch_server.rpc.threads import CallThreads, Completion


def test_calls_run_in_the_order_of_submission() -> None:
    threads = CallThreads(1, "test")
    seen: list[int] = []
    done = threading.Event()

    for number in range(100):
        threads.submit(seen.append, number)
    threads.submit(done.set)

    assert done.wait(10)
    assert seen == list(range(100))
    threads.close()


def test_as_many_calls_run_at_once_as_there_are_threads() -> None:
    threads = CallThreads(3, "test")
    together = threading.Barrier(4)

    for _ in range(3):
        threads.submit(together.wait, 10)

    together.wait(10)
    threads.close()


def test_waiting_calls_are_counted() -> None:
    threads = CallThreads(1, "test")
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(10)

    threads.submit(hold)
    assert entered.wait(10)
    for _ in range(5):
        threads.submit(int)

    assert threads.waiting == 5
    leave.set()
    threads.close()


def test_a_failing_call_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    threads = CallThreads(1, "test")
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("broken")

    ended = threads.submit(fail)
    ended.add_done_callback(lambda _: done.set())

    assert done.wait(10)
    done.clear()
    threads.submit(done.set)
    assert done.wait(10)
    assert "broken" in caplog.text
    threads.close()


def test_close_lets_waiting_calls_run_and_ends_the_threads() -> None:
    before = threading.active_count()
    threads = CallThreads(2, "test")
    seen: list[int] = []
    for number in range(10):
        threads.submit(seen.append, number)

    threads.close()

    for thread in threading.enumerate():
        if thread.name.startswith("test-"):
            thread.join(10)
    assert sorted(seen) == list(range(10))
    assert threading.active_count() <= before


def test_every_callback_is_told_once_however_the_threads_meet() -> None:
    for _ in range(200):
        completion = Completion()
        told: list[Completion] = []
        ender = threading.Thread(target=completion.finish)
        ender.start()
        completion.add_done_callback(told.append)
        ender.join(10)

        assert told == [completion]


def test_a_callback_added_late_is_told_at_once() -> None:
    completion = Completion()
    told: list[Completion] = []
    completion.finish()

    completion.add_done_callback(told.append)

    assert told == [completion]
