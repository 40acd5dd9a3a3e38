"""Captures of graphs are alone; everything else may be at work together."""

import random
import threading
import time

from anabranch_runtime.backends.gpu.gates import CaptureGate

DEADLINE_S = 20.0


def test_work_of_several_members_overlaps() -> None:
    gate = CaptureGate()
    one, other = gate.join(), gate.join()

    with one.working(), other.working():
        assert not gate.is_wanted


def test_a_capture_waits_for_work_and_lets_none_begin() -> None:
    gate = CaptureGate()
    worker, begun, over, after = gate.join(), threading.Event(), threading.Event(), []

    def capture() -> None:
        with gate.capturing():
            begun.set()
            over.wait(DEADLINE_S)
            after.append("capture")

    worker.enter()
    worker.enter()  # a second batch behind the first
    thread = threading.Thread(target=capture)
    thread.start()
    end = time.monotonic() + DEADLINE_S
    while not gate.is_wanted and time.monotonic() < end:
        time.sleep(0.001)
    assert gate.is_wanted
    worker.leave()
    assert not begun.wait(0.05)
    worker.leave()
    assert begun.wait(DEADLINE_S)

    def work() -> None:
        with worker.working():
            after.append("work")

    late = threading.Thread(target=work)
    late.start()
    late.join(0.05)
    assert after == []
    over.set()
    late.join(DEADLINE_S)
    thread.join(DEADLINE_S)
    assert after == ["capture", "work"]


def test_captures_are_alone_whatever_comes_and_goes() -> None:
    gate = CaptureGate()
    at_work, captures, wrong = [0] * 4, [0], []

    def serve(number: int) -> None:
        draws, member = random.Random(number), gate.join()
        for _ in range(400):
            if draws.random() < 0.05:
                with gate.capturing():
                    captures[0] += 1
                    if captures[0] != 1 or any(at_work):
                        wrong.append(number)
                    time.sleep(0.0002)
                    captures[0] -= 1
                continue
            with member.working():
                at_work[number] = 1
                if captures[0]:
                    wrong.append(number)
                if draws.random() < 0.1:
                    time.sleep(0.0002)
                at_work[number] = 0
            if draws.random() < 0.05:
                gate.part(member)
                member = gate.join()
        gate.part(member)

    threads = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert wrong == []
