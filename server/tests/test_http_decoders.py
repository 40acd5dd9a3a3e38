import asyncio
import threading
from concurrent.futures import Future

import pytest

from anabranch_server.http.bodies import Decoded
from anabranch_server.http.decoders import MAX_WAITING, Decoders
from anabranch_wire.errors import InvalidInput, Overloaded


class Held:
    """A body whose decoder waits until the test lets it go, and then finds it wrong."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.begun = threading.Event()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def decode(self) -> Decoded:
        self.begun.set()
        assert self.gate.wait(20)
        raise InvalidInput("wrong")

    def decoded(self, future: Future[Decoded]) -> None:
        self.outcome.set_result(str(future.exception()))


def test_what_waits_is_bounded_and_can_be_withdrawn() -> None:
    async def act() -> None:
        gate = threading.Event()
        decoders = Decoders(asyncio.get_running_loop())
        running = [Held(gate) for _ in range(2)]
        waiting = [Held(gate) for _ in range(MAX_WAITING)]
        for job in running + waiting:
            decoders.submit(job)
        with pytest.raises(Overloaded) as caught:
            decoders.submit(Held(gate))
        assert caught.value.retry_after_s > 0

        gone = waiting[::2]
        for job in [*gone, *gone, running[0]]:
            decoders.withdraw(job)
        late = Held(gate)
        decoders.submit(late)
        gate.set()

        assert await asyncio.wait_for(late.outcome, 20) == "wrong"
        outcomes = [job.outcome for job in [*running, *waiting[1::2]]]
        assert await asyncio.wait_for(asyncio.gather(*outcomes), 20) == ["wrong"] * len(outcomes)
        assert not any(job.begun.is_set() for job in gone)

    asyncio.run(act())


def test_a_loop_that_closed_gets_nothing() -> None:
    gate = threading.Event()

    async def act() -> Held:
        job = Held(gate)
        Decoders(asyncio.get_running_loop()).submit(job)
        assert job.begun.wait(20)
        return job

    job = asyncio.run(act())
    gate.set()
    assert not job.outcome.done()
