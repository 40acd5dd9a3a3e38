import pytest

from anabranch_server.processes.loader_messages import Progress
from anabranch_server.supervisor.keeper_counts import DURATION_BOUNDS, Durations, ReloadCounts
from anabranch_server.supervisor.keeper_failures import Failures
from anabranch_server.supervisor.operations import Operations
from anabranch_testing.event_loops import on_loop
from anabranch_wire.errors import AnabranchError, Corrupt, Internal, NotFound, Unavailable, Unproven


@on_loop
async def test_an_operation_says_how_far_it_is_and_ends_once() -> None:
    operations = Operations()
    operation = operations.begin("reload", "m")
    operation.advance(Progress(1, "verifying", 25, 100))
    view = operation.view()
    assert (view.state, view.phase, view.progress) == ("RUNNING", "verifying", 0.25)
    assert (view.bytes_done, view.bytes_total) == (25, 100)
    operation.advance(Progress(1, "comparing"))
    assert operation.view().progress is None
    await operation.wait(0.001)
    assert not operation.is_over
    operation.finish(Corrupt("cut off"))
    operation.finish()
    operation.cancel()
    ended = operations.view("op-000001")
    assert (ended.state, ended.error, ended.phase) == ("FAILED", "cut off", None)
    await operation.wait(60)


@on_loop
async def test_each_supervisor_has_ids_of_its_own_and_says_so_of_those_of_others() -> None:
    before, after = Operations(incarnation=2), Operations(incarnation=3)

    old = before.begin("load", "m").id
    assert Operations().begin("load", "m").id == "op-000001"
    assert (old, after.begin("reload", "m").id) == ("op-1000001", "op-2000001")

    for replaced in (old, "op-000001"):
        with pytest.raises(NotFound, match=f"{replaced}' was of a supervisor that has been repl"):
            after.view(replaced)
    for nonsense in ("op-2000002", "op-x", "op--1", "1", "op-\u0663", "op-" + "9" * 5000):
        with pytest.raises(NotFound, match="is not known"):
            after.view(nonsense)


@on_loop
async def test_the_last_operations_are_remembered_and_those_at_work() -> None:
    operations = Operations(kept=3)
    first = operations.begin("load", "m")
    for _ in range(5):
        operations.begin("load", "m").finish()
    assert [view.id for view in operations.views()] == ["op-000006", "op-000005", "op-000001"]
    first.finish()
    operations.begin("load", "m")
    assert [view.id for view in operations.views()] == ["op-000007", "op-000006", "op-000005"]


@pytest.mark.parametrize(
    ("passing", "reason"),
    [
        (Unavailable("no such server"), "unreachable"),
        (Internal("two loaders died of it"), "internal"),
        (Unproven("found another"), "checksum"),
    ],
)
def test_what_is_broken_stays_so_and_what_may_pass_is_tried_later_and_later(
    passing: AnabranchError, reason: str
) -> None:
    failures = Failures()
    failures.note(1, "a", Corrupt("cut off"), 100.0)
    failures.note(2, "b", passing, 100.0)
    assert failures.broken(100.0) == {1: "a", 2: "b"}
    assert failures.next_retry_s(100.0) == 110.0
    assert failures.next_retry_s(110.0) is None
    assert failures.broken(110.0) == {1: "a"}
    failures.note(2, "b", passing, 110.0)
    assert failures.next_retry_s(110.0) == 130.0
    for _ in range(20):
        failures.note(2, "b", passing, 200.0)
    assert failures.next_retry_s(200.0) == 800.0
    failures.note(2, "c", passing, 900.0)
    assert failures.next_retry_s(900.0) == 910.0
    assert failures.last is not None
    assert (failures.last.version, failures.last.reason) == (2, reason)
    failures.forget(2)
    assert (failures.next_retry_s(0.0), failures.error_of(2)) == (None, None)
    failures.forget()
    assert failures.broken(0.0) == {}


def test_what_is_found_good_and_then_refused_is_tried_later_and_later_too() -> None:
    failures = Failures()
    for now_s, due_s in ((100.0, 110.0), (110.0, 130.0), (130.0, 170.0)):
        failures.note(2, "b", Internal("a worker could not prepare it"), now_s)
        assert failures.next_retry_s(now_s) == due_s
        failures.passed(2)
        assert (failures.broken(now_s), failures.error_of(2)) == ({}, None)
    failures.forget(2)
    failures.note(2, "b", Internal("a worker could not prepare it"), 200.0)
    assert failures.next_retry_s(200.0) == 210.0


def test_durations_fall_into_buckets() -> None:
    durations = Durations()
    for seconds in (0.01, 0.011, 1e6):
        durations.add(seconds)
    assert durations.counts[0] == durations.counts[1] == durations.counts[-1] == 1
    assert (durations.count, len(durations.counts)) == (3, len(DURATION_BOUNDS) + 1)
    counts = ReloadCounts()
    counts.served("m", "version", -5.0)
    assert counts.publish_to_served["m", "version"].sum == 0.0
