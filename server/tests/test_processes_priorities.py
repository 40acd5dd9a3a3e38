import os
import threading

from anabranch_server.processes.priorities import become_idle


def test_only_the_calling_thread_becomes_idle() -> None:
    seen: list[tuple[bool, int]] = []

    def idle() -> None:
        seen.append((become_idle(), os.sched_getscheduler(0)))

    thread = threading.Thread(target=idle)
    thread.start()
    thread.join()

    ((became, policy),) = seen
    assert became == (policy == os.SCHED_IDLE)
    assert os.sched_getscheduler(0) != os.SCHED_IDLE
