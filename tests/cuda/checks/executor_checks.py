"""Executors beside each other on the stub: replays and updates of weights of several threads."""

import threading

from cuda.core import Device, Kernel

from anabranch_testing.cuda_executors import AffineExecutor
from anabranch_testing.cuda_stub_control import CudaStub

EXECUTORS = 4
REPLAYS = 300
REPLAYS_A_VERSION = 10


def test_updates_in_stream_order_tear_no_result(
    stub: CudaStub, device: Device, kernel: Kernel
) -> None:
    whole = [0] * EXECUTORS
    torn: list[tuple[int, int]] = []

    def serve(number: int) -> None:
        device = Device(0)
        device.set_current()
        executor = AffineExecutor(device, kernel)
        for replay in range(REPLAYS):
            version = replay // REPLAYS_A_VERSION
            if replay % REPLAYS_A_VERSION == 0:
                executor.update(version, version)
            executor.launch(replay + number)
            expected = (replay + number) * version + version
            if (executor.wait() == expected).all():
                whole[number] += 1
            else:
                torn.append((number, replay))
        executor.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(EXECUTORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torn == []
    assert whole == [REPLAYS] * EXECUTORS
