"""Captures and graphs on the stub."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from cuda.bindings import driver
from cuda.core import Device, Kernel, Stream, StreamOptions
from cuda.core.graph import GraphBuilder

from anabranch_testing.cuda_executors import AffineExecutor, pinned_floats, plain_stream
from anabranch_testing.cuda_stub_control import CudaStub

SUCCESS = driver.CUresult.CUDA_SUCCESS
UNSUPPORTED = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
INVALIDATED = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
MODES = {
    "global": driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL,
    "thread_local": driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    "relaxed": driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED,
}


def in_another_thread(device: Device, call: Callable[[], Any]) -> Any:
    results: list[Any] = []

    def run() -> None:
        device.set_current()
        results.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def test_a_graph_replays_copies_and_kernels(stub: CudaStub, device: Device, kernel: Kernel) -> None:
    executor = AffineExecutor(device, kernel)
    executor.update(2, 1)
    for x in (1.0, 2.0, 3.0):
        executor.launch(x)
        assert (executor.wait() == 2 * x + 1).all()
    executor.close()


def test_a_graph_tells_its_nodes(stub: CudaStub, stream: Stream) -> None:
    source, _ = pinned_floats(4)
    target, _ = pinned_floats(4)
    driver.cuStreamBeginCapture(stream.handle, MODES["relaxed"])
    target.fill(1, stream=stream)
    source.copy_to(target, stream=stream)
    _, graph = driver.cuStreamEndCapture(stream.handle)
    _, nodes, count = driver.cuGraphGetNodes(graph, 2)
    assert [driver.cuGraphNodeGetType(node)[1] for node in nodes] == [
        driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET,
        driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY,
    ]
    assert count == 2
    driver.cuGraphDestroy(graph)
    source.close()
    target.close()


def test_a_launch_under_way_keeps_its_graph(stub: CudaStub, device: Device, stream: Stream) -> None:
    stub.set_mode("lazy")
    target, y = pinned_floats(4)
    y[:] = -1

    def filling(value: int) -> GraphBuilder:
        builder = stream.create_graph_builder().begin_building("relaxed")
        target.fill(value, stream=builder)
        return builder.end_building()

    graph = filling(0).complete()
    graph.launch(stream)
    graph.update(filling(255))
    graph.close()
    stream.sync()
    assert y[0] == 0
    target.close()


def test_an_update_has_to_have_the_same_shape(stub: CudaStub, stream: Stream) -> None:
    target, _ = pinned_floats(4)
    builder = stream.create_graph_builder().begin_building("relaxed")
    target.fill(1, stream=builder)
    graph = builder.end_building().complete()
    longer = stream.create_graph_builder().begin_building("relaxed")
    target.fill(1, stream=longer)
    target.fill(2, stream=longer)
    with pytest.raises(Exception, match="TOPOLOGY_CHANGED"):
        graph.update(longer.end_building())
    graph.close()
    target.close()


@pytest.mark.parametrize(
    ("mode", "own", "other"),
    [
        ("global", UNSUPPORTED, UNSUPPORTED),
        ("thread_local", UNSUPPORTED, SUCCESS),
        ("relaxed", SUCCESS, SUCCESS),
    ],
)
def test_what_may_be_called_beside_a_capture(
    stub: CudaStub,
    device: Device,
    mode: str,
    own: driver.CUresult,
    other: driver.CUresult,
) -> None:
    def allocate() -> driver.CUresult:
        error, memory = driver.cuMemAlloc(64)
        if error == SUCCESS:
            driver.cuMemFree(memory)
        return error

    for call, expected in (
        (allocate, own),
        (lambda: in_another_thread(device, allocate), other),
    ):
        stream = plain_stream(device)
        driver.cuStreamBeginCapture(stream.handle, MODES[mode])
        assert call() == expected
        error, graph = driver.cuStreamEndCapture(stream.handle)
        assert error == (SUCCESS if expected == SUCCESS else INVALIDATED)
        if error == SUCCESS:
            driver.cuGraphDestroy(graph)
        stream.close()


def test_a_thread_may_take_its_own_attitude(stub: CudaStub, device: Device, stream: Stream) -> None:
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    builder = stream.create_graph_builder().begin_building("global")
    _, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    error, memory = driver.cuMemAlloc(64)
    driver.cuThreadExchangeStreamCaptureMode(before)
    assert error == SUCCESS
    builder.end_building().close()
    driver.cuMemFree(memory)


@pytest.mark.parametrize("call", ["sync", "query", "event"])
def test_waiting_for_what_is_captured_invalidates_the_capture(
    stub: CudaStub, device: Device, call: str
) -> None:
    stream = plain_stream(device)
    driver.cuStreamBeginCapture(stream.handle, MODES["relaxed"])
    if call == "event":
        event = stream.record()
        assert driver.cuEventQuery(event.handle)[0] == driver.CUresult.CUDA_ERROR_CAPTURED_EVENT
    elif call == "sync":
        assert driver.cuStreamSynchronize(stream.handle)[0] == UNSUPPORTED
    else:
        assert driver.cuStreamQuery(stream.handle)[0] == UNSUPPORTED
    assert driver.cuStreamEndCapture(stream.handle)[0] == INVALIDATED
    stream.close()


def test_the_default_stream_disturbs_captures_of_blocking_streams(
    stub: CudaStub, device: Device
) -> None:
    target, _ = pinned_floats(4)
    blocking = device.create_stream(options=StreamOptions(nonblocking=False))
    driver.cuStreamBeginCapture(blocking.handle, MODES["relaxed"])
    with pytest.raises(Exception, match="STREAM_CAPTURE_IMPLICIT"):
        target.fill(1, stream=device.default_stream)
    assert driver.cuStreamEndCapture(blocking.handle)[0] == INVALIDATED
    blocking.close()
    target.close()


def test_a_capture_ends_where_it_began(stub: CudaStub, device: Device, stream: Stream) -> None:
    builder = stream.create_graph_builder().begin_building("thread_local")
    error, _ = in_another_thread(device, lambda: driver.cuStreamEndCapture(stream.handle))
    assert error == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    builder.end_building().close()


def test_branches_wait_for_no_more_than_they_were_told(stub: CudaStub, stream: Stream) -> None:
    first, a = pinned_floats(4)
    second, b = pinned_floats(4)
    third, c = pinned_floats(4)
    root = stream.create_graph_builder().begin_building("relaxed")
    left, right = root.split(2)
    first.fill(1, stream=left)
    first.copy_to(second, stream=right)  # should have waited for the left branch
    joined = GraphBuilder.join(left, right)
    first.copy_to(third, stream=joined)
    graph = joined.end_building().complete()
    stale = {}
    for mode in ("lazy", "eager"):
        stub.set_mode("lazy" if mode == "lazy" else "eager")
        a[:], b[:], c[:] = 0, 0, 0
        graph.launch(stream)
        stream.sync()
        stale[mode] = b[0] == 0
        assert c[0] == a[0] != 0
    assert stale == {"lazy": True, "eager": False}
    graph.close()
    for buffer in (first, second, third):
        buffer.close()


def test_a_branch_has_to_be_joined(stub: CudaStub, device: Device, stream: Stream) -> None:
    other = plain_stream(device)
    target, _ = pinned_floats(4)
    driver.cuStreamBeginCapture(stream.handle, MODES["relaxed"])
    event = stream.record()
    other.wait(event)
    target.fill(1, stream=other)
    error, _ = driver.cuStreamEndCapture(stream.handle)
    assert error == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    target.fill(2, stream=other)  # captures nothing any more
    other.sync()
    other.close()
    target.close()


def test_what_came_before_a_capture_is_no_part_of_it(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    other = plain_stream(device)
    event = other.record()
    driver.cuStreamBeginCapture(stream.handle, MODES["relaxed"])
    with pytest.raises(Exception, match="STREAM_CAPTURE_ISOLATION"):
        stream.wait(event)
    assert driver.cuStreamEndCapture(stream.handle)[0] == INVALIDATED
    other.close()


def test_callbacks_run_at_their_place_of_each_replay(stub: CudaStub, stream: Stream) -> None:
    target, y = pinned_floats(4)
    seen: list[float] = []
    builder = stream.create_graph_builder().begin_building("relaxed")
    target.fill(b"\0", stream=builder)
    builder.callback(lambda: seen.append(float(y[0])))
    target.fill(b"\1", stream=builder)
    graph = builder.end_building().complete()
    builder.close()
    for _ in range(2):
        graph.launch(stream)
    stream.sync()
    assert seen == [0.0, 0.0]
    graph.close()
    target.close()


def test_launches_of_one_graph_follow_one_another(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    other = plain_stream(device)
    launches: list[int] = []
    builder = stream.create_graph_builder().begin_building("relaxed")
    builder.callback(lambda: launches.append(len(launches)))
    graph = builder.end_building().complete()
    builder.close()
    graph.launch(stream)
    graph.launch(other)
    other.sync()
    assert launches == [0, 1]
    graph.close()
    stream.sync()
    other.close()
