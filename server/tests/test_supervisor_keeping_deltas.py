"""Versions kept at the deltas that they should be at, over a folder, without processes."""

import asyncio
import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from anabranch_runtime.counters import Series
from anabranch_server.administration import ActionRequest
from anabranch_server.processes.loader_messages import ApplyDeltas
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.holds import Records
from anabranch_server.supervisor.scrapes import reload_series
from anabranch_testing.event_loops import on_loop
from anabranch_testing.keepers import KeptServer, MemorySwitching, kept_server, write_version
from anabranch_testing.published_deltas import write_delta
from anabranch_testing.stand_ins import until
from anabranch_wire.errors import AnabranchError, Corrupt, InvalidInput, NotFound, Unavailable

over_hours = partial(on_loop, timeout_s=1e6)
"""For tests that make time pass."""


def publish(root: Path, version: int, *deltas: int, **told: object) -> None:
    """Publish deltas of model m; with `broken="why"` they cannot be applied."""
    header = {name: told.pop(name) for name in ("replaces_from", "event_time") if name in told}
    for delta in deltas:
        write_delta(root / "m" / str(version), delta, extra=told, **header)  # type: ignore[arg-type]  # of many types


def snapshot(server: KeptServer) -> str:
    return server.admin.snapshots()["m"]


def reloads(caplog: pytest.LogCaptureFixture, kind: str = "delta") -> list[tuple[object, ...]]:
    """The reload lines of a kind so far: version, delta, result, reason."""
    return [
        (line["version"], line["delta"], line["result"], line.get("reason"))
        for line in map(vars, caplog.records)
        if line.get("event") == "reload" and line["kind"] == kind
    ]


async def reach(server: KeptServer, expected: str) -> None:
    """Wait until a model is where it goes in several turns, and has nothing left to do there."""
    await until(lambda: snapshot(server) == expected)
    await server.settled()


async def pass_time(server: KeptServer, seconds: float) -> None:
    """Make what waits for a time believe that so much has passed."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # a stand-in's
    server.keeping.nudge()
    await server.settled()


# --- following --------------------------------------------------------------------------------


@on_loop
async def test_new_deltas_are_applied_and_switched_to(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        with caplog.at_level(logging.INFO):
            publish(root, 1, 1)
            await server.look()
            assert snapshot(server) == "1+1"
            publish(root, 1, 2, 3, 4)  # a backlog is one request, and one switch
            await server.look()
        assert snapshot(server) == "1+4"
        assert server.named_loader.applied == [("m", 1, 1), ("m", 1, 4)]
        assert len(server.switching.switches) == 3
        assert server.named_loader.requests == [("m", 1)]
        assert reloads(caplog) == [(1, 1, "ok", None), (1, 4, "ok", None)]
        line = [vars(one) for one in caplog.records if vars(one).get("event") == "reload"][-1]
        assert (line["rows"], line["bytes"]) == (3, 30)
        assert line["phase_ms"].keys() == {"verifying", "switching"}
        assert "version 1+4 is served" in caplog.text
        assert server.counts.reloads["m", "delta", "ok"] == 2
        assert server.counts.delta_rows["m", "upsert"] == 4
        assert server.counts.publish_to_served["m", "delta"].count == 2
        rows = [one for one in reload_series(server.counts) if "delta_rows" in one.name]
        assert rows == [
            Series(
                "counter", "anabranch_delta_rows_total", (("model", "m"), ("op", "upsert")),
                (4.0,), (), 4.0, 0,
            )
        ]  # fmt: skip


@on_loop
async def test_notes_of_deltas_are_said_once(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1, notes=["rows depend on each other"])
    async with kept_server(root, state) as server:
        publish(root, 1, 1, notes=["delta 1: its graph is not optimised"])
        await server.look()
        publish(root, 1, 2)
        await server.look()
    assert caplog.text.count("rows depend on each other") == 1
    assert caplog.text.count("version 1: delta 1: its graph is not optimised") == 1


@on_loop
async def test_what_comes_while_one_is_applied_is_applied_together(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.named_loader.gate.clear()
        server.named_loader.begun.clear()
        publish(root, 1, 1)
        await server.watcher.look()
        await server.named_loader.begun.wait()
        for delta in (2, 3, 4):
            publish(root, 1, delta)
            await server.watcher.look()
        server.named_loader.gate.set()
        await server.settled()
        assert server.named_loader.applied == [("m", 1, 1), ("m", 1, 4)]
        assert [state.versions[0].delta for _, state in server.switching.switches if state] == [
            0,
            4,
        ]


@on_loop
async def test_a_start_serves_the_newest_delta_first(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, *range(1, 20))
    async with kept_server(root, state) as server:
        assert [one.versions[0].delta for _, one in server.switching.switches if one] == [19]
        publish(root, 1, 20)
        await server.look()
    async with kept_server(root, state, launch="two") as server:
        assert [one.versions[0].delta for _, one in server.switching.switches if one] == [20]
    record = Records(state).read("m")
    assert record is not None
    assert [(one.version, one.delta) for one in record.versions] == [(1, 20)]


@on_loop
async def test_a_new_supervisor_goes_on_from_what_workers_serve(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2)
    async with kept_server(root, state) as server:
        left = dict(server.switching.states)
    publish(root, 1, 3)
    async with kept_server(root, state, switching=MemorySwitching(left)) as server:
        assert server.named_loader.requests == []
        assert server.named_loader.applied == [("m", 1, 3)]
        assert snapshot(server) == "1+3"


@on_loop
async def test_rows_of_a_supervisor_that_is_gone_are_made_anew_at_their_delta(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2)
    async with kept_server(root, state) as server:
        before = server.state()
        server.switching.orphaned.add("m")
        server.keeping.miss("m")
        await server.settled()
        assert server.switching.switches[-1] == ("m", before)
        server.switching.lacking.add("m")
        server.keeping.miss("m")
        await server.settled()
        assert server.named_loader.requests == [("m", 1), ("m", 1)]
        assert server.state() == before


@on_loop
async def test_what_cannot_be_mended_at_its_delta_does_not_go_back(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2)
    async with kept_server(root, state) as server:
        publish(root, 1, 2, broken="cut off")
        server.switching.lacking.add("m")
        server.keeping.miss("m")
        await server.settled()
        assert server.state().versions[0].delta == 2
        assert server.switching.given_up == ["m"]


@on_loop
async def test_versions_kept_for_a_rollback_stay_at_their_delta(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        publish(root, 1, 2)
        publish(root, 2, 1)
        await server.look()
        assert [(one.version, one.delta) for one in server.state().versions] == [(1, 1), (2, 1)]
        operation = await server.admin.act("rollback", "m", ActionRequest())
        assert (operation.state, snapshot(server)) == ("DONE", "1+1")
        assert server.admin.model("m").pinned == "1+1"
        publish(root, 1, 3)
        await server.look()
        assert snapshot(server) == "1+1"
        await server.admin.act("unpin", "m", ActionRequest())
        assert snapshot(server) == "2+1"


@on_loop
async def test_labelled_versions_follow_their_own_deltas(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    write_version(root / "m", 2)
    (root / "m" / "serving.yaml").write_text("labels: {stable: 1}\n")
    async with kept_server(root, state) as server:
        publish(root, 1, 1, 2)
        publish(root, 2, 1)
        await server.look()
        assert [(one.version, one.delta) for one in server.state().versions] == [(1, 2), (2, 1)]


@on_loop
async def test_deltas_of_what_is_served_go_before_a_new_version(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        publish(root, 1, 1)
        write_version(root / "m", 2)
        await server.look()
        seen = [
            [(one.version, one.delta) for one in told.versions]
            for _, told in server.switching.switches
            if told is not None
        ]
        assert seen == [[(1, 0)], [(1, 1)], [(1, 1), (2, 0)]]


# --- manual -----------------------------------------------------------------------------------


@on_loop
async def test_deltas_that_wait_to_be_asked_for_are_applied_by_reload(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    (root / "m" / "serving.yaml").write_text("deltas: {apply: manual}\n")
    publish(root, 1, 1)
    async with kept_server(root, state) as server:
        assert snapshot(server) == "1"
        publish(root, 1, 2)
        await server.look()
        assert (snapshot(server), server.named_loader.applied) == ("1", [])
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert (operation.state, snapshot(server)) == ("DONE", "1+2")
        publish(root, 1, 3)
        await server.look()
        assert snapshot(server) == "1+2"
    async with kept_server(root, state, launch="two") as server:
        assert snapshot(server) == "1+2"
        (root / "m" / "serving.yaml").write_text("deltas: {apply: auto}\n")
        await server.look()
        assert snapshot(server) == "1+3"


# --- what is in the way -----------------------------------------------------------------------


@on_loop
async def test_a_refused_delta_is_said_once_and_what_was_reached_is_served(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        publish(root, 1, 1, 2)
        publish(root, 1, 3, broken="0000.safetensors: expected 9f2c, found 01ab")
        with caplog.at_level(logging.INFO):
            await server.look()
            assert snapshot(server) == "1+2"
            for delta in range(4, 12):
                publish(root, 1, delta)
                await server.look()
        assert snapshot(server) == "1+2"
        assert server.named_loader.read == [1, 2, 3]  # not each time that another one comes
        assert reloads(caplog) == [(1, 3, "failed", "checksum"), (1, 2, "ok", None)]
        assert server.counts.failures["m", "checksum"] == 1
        model = server.admin.model("m")
        assert model.last_error is not None
        assert (model.last_error.version, model.last_error.delta) == (1, 3)
        assert model.last_error.reason == "checksum"
        assert model.versions[0].last_error == (
            "delta 3: 0000.safetensors: expected 9f2c, found 01ab"
        )
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert (operation.state, operation.error) == (
            "FAILED",
            "version 1 goes no further: delta 3: 0000.safetensors: expected 9f2c, found 01ab",
        )
        publish(root, 1, 12, replaces_from=1)
        await server.look()
        assert snapshot(server) == "1+12"
        assert server.admin.model("m").versions[0].last_error is None


@on_loop
async def test_a_cumulative_delta_that_is_refused_too_is_told_of(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        publish(root, 1, 1)
        publish(root, 1, 2, broken="cut off")
        await server.look()
        publish(root, 1, 3, replaces_from=1, broken="cut off too")
        with caplog.at_level(logging.INFO):
            await server.look()
        assert reloads(caplog) == [(1, 2, "failed", "checksum"), (1, 3, "failed", "checksum")]
        assert server.counts.failures["m", "checksum"] == 2
        error = server.admin.model("m").last_error
        assert error is not None
        assert (error.delta, error.error) == (3, "cut off too")
        for force in (False, True):
            operation = await server.admin.act("reload", "m", ActionRequest(force=force))
            assert operation.state == "FAILED"
            assert operation.error is not None
            assert operation.error.endswith("delta 3: cut off too")
        publish(root, 1, 4, replaces_from=1)
        await server.look()
        assert snapshot(server) == "1+4"


@over_hours
async def test_a_refused_delta_is_tried_again_by_force_or_when_its_files_change(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1)
    publish(root, 1, 2, broken="cut off")
    publish(root, 1, 3)
    async with kept_server(root, state) as server:
        assert (snapshot(server), server.named_loader.read) == ("1+1", [1, 2])
        await server.admin.act("reload", "m", ActionRequest(force=True))
        assert (snapshot(server), server.named_loader.read) == ("1+1", [1, 2, 2])
        assert server.counts.failures["m", "checksum"] == 2
        publish(root, 1, 2)
        await pass_time(server, 6.0)
        assert snapshot(server) == "1+3"
        kept = server.keeping.keeper("m").kept
        assert kept.wake_at_s(asyncio.get_running_loop().time()) is None


@over_hours
async def test_files_of_a_refused_delta_that_are_put_right_count_as_changed(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, broken="0000.safetensors: missing")
    async with kept_server(root, state) as server:
        kept = server.keeping.keeper("m").kept
        at_s = kept.wake_at_s(asyncio.get_running_loop().time())
        assert at_s is not None
        assert 0 < at_s - asyncio.get_running_loop().time() <= 6.0
        await pass_time(server, 6.0)  # they may have changed while they were read
        assert server.named_loader.read == [1, 1]
        await pass_time(server, 6.0)
        assert server.named_loader.read == [1, 1]
        attempt = root / "m" / "1" / "deltas" / "00000001" / ("0" * 16)
        attempt.mkdir()
        (attempt / "0000.safetensors").write_text("x")
        await pass_time(server, 6.0)
        assert server.named_loader.read == [1, 1, 1]


@over_hours
async def test_a_delta_that_is_put_right_while_it_is_refused_is_applied(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.named_loader.gate.clear()
        server.named_loader.begun.clear()
        publish(root, 1, 1, broken="not JSON")
        await server.watcher.look()
        await server.named_loader.begun.wait()

        def put_right_after_it_is_read(request: ApplyDeltas) -> AnabranchError:
            publish(root, 1, 1)
            server.named_loader.refuse = lambda request: None
            return Corrupt("not JSON")

        server.named_loader.refuse = put_right_after_it_is_read
        server.named_loader.gate.set()
        await server.settled()
        assert snapshot(server) == "1"
        await pass_time(server, 6.0)
        assert snapshot(server) == "1+1"


@over_hours
async def test_what_may_pass_is_tried_again_later_each_time(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1)
    async with kept_server(root, state) as server:
        server.named_loader.refuse = lambda request: Unavailable("the disk is away")
        server.named_loader.applied.clear()
        publish(root, 1, 2)
        await server.look()
        publish(root, 1, 3)
        await server.look()
        assert len(server.named_loader.applied) == 1
        for wait_s, times in ((9.0, 1), (2.0, 2), (15.0, 2), (6.0, 3)):
            await pass_time(server, wait_s)
            assert len(server.named_loader.applied) == times
        assert server.counts.failures["m", "unreachable"] == 1
        server.named_loader.refuse = lambda request: None
        await pass_time(server, 50.0)
        assert snapshot(server) == "1+3"
        for _ in range(20):
            assert server.admin.model("m").versions[0].last_error is None


@over_hours
async def test_rows_that_do_not_fit_are_reported_and_tried_again(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.switching.refuse = lambda wanted: NoRoom("no room for 7 rows")
        publish(root, 1, 1)
        await server.look()
        publish(root, 1, 2)
        await server.look()
        assert (snapshot(server), len(server.named_loader.applied)) == ("1", 1)
        assert server.counts.failures["m", "store_full"] == 1
        error = server.admin.model("m").last_error
        assert error is not None
        assert (error.version, error.delta, error.error) == (1, 1, "no room for 7 rows")
        server.switching.refuse = lambda wanted: None
        await pass_time(server, 11.0)
        assert snapshot(server) == "1+2"
        assert server.counts.reloads["m", "delta", "ok"] == 1


def has_room_up_to(delta: int, tried: list[int]) -> Callable[[StatePlan | None], NoRoom | None]:
    """Return what refuses rows of later deltas; `tried` gets those of the first version."""

    def refuse(wanted: StatePlan | None) -> NoRoom | None:
        if wanted is None:
            return None
        tried.append(wanted.versions[0].delta)
        full = [one.version for one in wanted.versions if one.delta > delta]
        return NoRoom("no room for 7 keys", full[0]) if full else None

    return refuse


@over_hours
async def test_rows_that_do_not_fit_are_tried_again_later_each_time(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        tried: list[int] = []
        server.switching.refuse = has_room_up_to(0, tried)
        publish(root, 1, 1)
        await server.look()
        for wait_s, times in ((9.0, 1), (2.0, 2), (15.0, 2), (6.0, 3), (35.0, 3), (6.0, 4)):
            await pass_time(server, wait_s)
            assert tried == [1] * times
        assert reloads(caplog) == [(1, 1, "failed", "store_full")]
        assert server.admin.model("m").versions[0].last_error == "delta 1: no room for 7 keys"
        server.switching.refuse = lambda wanted: None
        await pass_time(server, 90.0)
        assert snapshot(server) == "1+1"
        assert server.admin.model("m").versions[0].last_error is None


@over_hours
async def test_a_start_whose_newest_delta_does_not_fit_serves_what_was_served_before(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2, 3)
    async with kept_server(root, state) as server:
        assert snapshot(server) == "1+3"
    publish(root, 1, 4)
    tried: list[int] = []
    switching = MemorySwitching()
    switching.refuse = has_room_up_to(3, tried)
    async with kept_server(root, state, switching=switching, launch="two") as server:
        assert (snapshot(server), tried) == ("1+3", [4, 3])
        assert reloads(caplog) == [(1, 4, "failed", "store_full")]
        model = server.admin.model("m")
        assert model.last_error is not None
        assert (model.last_error.version, model.last_error.delta) == (1, 4)
        assert model.last_error.reason == "store_full"
        await pass_time(server, 11.0)
        assert tried == [4, 3, 4]
        switching.refuse = lambda wanted: None
        await pass_time(server, 21.0)
        assert snapshot(server) == "1+4"


@pytest.mark.parametrize("fits", [0, 1, 4, 7, 8])
@on_loop
async def test_a_start_without_a_record_finds_the_newest_delta_that_fits(
    fits: int, root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, *range(1, 10))
    tried: list[int] = []
    switching = MemorySwitching()
    switching.refuse = has_room_up_to(fits, tried)
    async with kept_server(root, state, switching=switching) as server:
        await reach(server, f"1+{fits}" if fits else "1")
        refused = f"delta {fits + 1}: no room for 7 keys"
        await until(lambda: server.admin.model("m").versions[0].last_error == refused)
        assert len(tried) < 12


@on_loop
async def test_what_came_while_a_server_was_down_is_served_as_far_as_it_fits(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2)
    async with kept_server(root, state):
        pass
    publish(root, 1, 3, 4, 5, 6)
    tried: list[int] = []
    switching = MemorySwitching()
    switching.refuse = has_room_up_to(4, tried)
    async with kept_server(root, state, switching=switching, launch="two") as server:
        assert tried[:2] == [6, 2]  # what was served is there again before anything else is tried
        await reach(server, "1+4")
        publish(root, 1, 7, replaces_from=1)
        switching.refuse = lambda wanted: None
        await server.look()
        assert snapshot(server) == "1+7"


@on_loop
async def test_a_version_that_does_not_fit_holds_no_other_one_back(root: Path, state: Path) -> None:
    for version in (1, 2):
        write_version(root / "m", version)
    (root / "m" / "serving.yaml").write_text("labels: {stable: 1}\n")
    publish(root, 1, 1)
    publish(root, 2, 1)

    def refuse(wanted: StatePlan | None) -> NoRoom | None:
        full = wanted is not None and any((n.version, n.delta) == (1, 1) for n in wanted.versions)
        return NoRoom("no room for 7 keys", 1) if full else None

    switching = MemorySwitching()
    switching.refuse = refuse
    async with kept_server(root, state, switching=switching) as server:
        assert [(one.version, one.delta) for one in server.state().versions] == [(1, 0), (2, 1)]


@over_hours
async def test_a_start_that_cannot_be_switched_to_is_not_loaded_with_each_delta(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    switching = MemorySwitching()
    switching.refuse = lambda wanted: Unavailable("no worker is alive")
    async with kept_server(root, state, switching=switching) as server:
        for delta in (1, 2, 3):
            publish(root, 1, delta)
            await server.look()
        assert server.named_loader.requests == [("m", 1)]
        switching.refuse = lambda wanted: None
        await pass_time(server, 11.0)
        assert snapshot(server) == "1+3"


@on_loop
async def test_a_retained_delta_that_workers_cannot_build_any_more_is_made_anew(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        for delta in (1, 2):
            publish(root, 1, delta)
            await server.look()
        server.switching.refuse = lambda wanted: InvalidInput("no such file")
        operation = await server.admin.act("rollback", "m", ActionRequest(delta=1))
        assert (operation.state, snapshot(server)) == ("FAILED", "1+2")
        server.switching.refuse = lambda wanted: None
        operation = await server.admin.act("rollback", "m", ActionRequest(delta=1))
        assert (operation.state, snapshot(server)) == ("DONE", "1+1")
        assert server.named_loader.requests == [("m", 1), ("m", 1)]


@on_loop
async def test_what_was_in_the_way_of_versions_that_are_gone_is_forgotten(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, broken="cut off")
    (root / "m" / "serving.yaml").write_text("keep_previous: 0\n")
    async with kept_server(root, state) as server:
        kept = server.keeping.keeper("m").kept
        assert kept.wake_at_s(asyncio.get_running_loop().time()) is not None
        write_version(root / "m", 2)
        await server.look()
        assert (snapshot(server), kept.wake_at_s(asyncio.get_running_loop().time())) == ("2", None)


@over_hours
async def test_a_gap_is_waited_for_in_silence_then_reported_once_and_goes_on_by_itself(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        publish(root, 1, 1, 2, 4)
        await server.look()
        for delta in (5, 6, 7):
            publish(root, 1, delta)
            await server.look()
        assert (snapshot(server), server.named_loader.applied) == ("1+2", [("m", 1, 4)])
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert (operation.state, server.admin.model("m").last_error) == ("DONE", None)
        at_s = server.keeping.keeper("m").kept.wake_at_s(asyncio.get_running_loop().time())
        assert at_s is not None
        assert 50 < at_s - asyncio.get_running_loop().time() <= 60
        assert not server.counts.failures
        for _ in range(4):
            await pass_time(server, 61.0)
        assert server.counts.failures["m", "gap"] == 1
        assert len(server.named_loader.applied) == 2
        assert reloads(caplog) == [(1, 3, "failed", "gap")]
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert operation.error == "version 1 goes no further: delta 3 is missing"
        publish(root, 1, 3)
        await server.look()
        assert snapshot(server) == "1+7"
        assert server.admin.model("m").versions[0].last_error is None


@on_loop
async def test_a_gap_that_is_filled_in_time_is_no_failure(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        publish(root, 1, 2)
        await server.look()
        assert snapshot(server) == "1"
        publish(root, 1, 1)
        await server.look()
        assert snapshot(server) == "1+2"
        assert not server.counts.failures


@on_loop
async def test_a_cumulative_delta_that_was_there_before_leads_over_a_gap(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 7, replaces_from=1)
    publish(root, 1, 8)
    async with kept_server(root, state) as server:
        assert snapshot(server) == "1+8"
        assert server.named_loader.read == [7, 8]


@on_loop
async def test_a_broken_cumulative_delta_leaves_the_way_by_single_ones(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2, 3)
    publish(root, 1, 4, replaces_from=1, broken="cut off")
    async with kept_server(root, state) as server:
        assert snapshot(server) == "1+3"
        assert server.named_loader.read == [4, 1, 2, 3]


@on_loop
async def test_deltas_that_are_of_another_version_leave_it_as_published(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, broken="base", kind="Conflict", reason="wrong_base")
    async with kept_server(root, state) as server:
        assert snapshot(server) == "1"
        assert server.counts.failures["m", "wrong_base"] == 1
        assert server.admin.model("m").state == "READY"


@on_loop
async def test_deltas_that_vanish_take_nothing_back(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2)
    async with kept_server(root, state) as server:
        shutil.rmtree(root / "m" / "1" / "deltas")
        await server.look()
        assert snapshot(server) == "1+2"


# --- rollback ---------------------------------------------------------------------------------


@on_loop
async def test_rollback_to_a_retained_delta_needs_no_loader_and_survives_restarts(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        for delta in (1, 2, 3):
            publish(root, 1, delta)
            await server.look()
        server.named_loader.applied.clear()
        operation = await server.admin.act("rollback", "m", ActionRequest(version=1, delta=2))
        assert (operation.state, snapshot(server)) == ("DONE", "1+2")
        assert server.counts.reloads["m", "rollback", "ok"] == 1
        publish(root, 1, 4)
        await server.look()
        assert (snapshot(server), server.named_loader.applied) == ("1+2", [])
        view = server.admin.model("m")
        assert (view.pinned, view.versions[0].delta) == ("1+2", 2)
    async with kept_server(root, state, launch="two") as server:
        assert (snapshot(server), server.named_loader.applied) == ("1+2", [("m", 1, 2)])
        assert len(server.switching.switches) == 1
        operation = await server.admin.act("unpin", "m", ActionRequest())
        assert (operation.state, snapshot(server)) == ("DONE", "1+4")


@on_loop
async def test_after_a_rollback_deltas_go_on_from_the_newest_one_that_was_served(
    root: Path, state: Path
) -> None:
    """Its rows are in memory, so that only what follows is read and changed."""
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        for delta in (1, 2, 3):
            publish(root, 1, delta)
            await server.look()
        await server.admin.act("rollback", "m", ActionRequest(version=1, delta=2))
        publish(root, 1, 4)
        await server.look()
        server.named_loader.read.clear()

        await server.admin.act("unpin", "m", ActionRequest())

        assert (snapshot(server), server.named_loader.read) == ("1+4", [4])


@on_loop
async def test_rollback_to_any_delta_goes_by_the_version_as_published(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, *range(1, 10))
    async with kept_server(root, state) as server:
        await server.admin.act("rollback", "m", ActionRequest(delta=4))
        assert snapshot(server) == "1+4"
        assert server.named_loader.requests == [("m", 1)]
        assert server.named_loader.applied[-1] == ("m", 1, 4)
        await server.admin.act("rollback", "m", ActionRequest(version=1, delta=6))
        assert (snapshot(server), server.admin.model("m").pinned) == ("1+6", "1+6")
        await server.admin.act("rollback", "m", ActionRequest(delta=0))
        assert (snapshot(server), server.admin.model("m").pinned) == ("1", "1")
        await server.admin.act("reload", "m", ActionRequest(unpin=True))
        assert snapshot(server) == "1+9"


@on_loop
async def test_a_version_that_was_adopted_is_loaded_once_more_for_an_older_delta(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2, 3)
    async with kept_server(root, state) as server:
        left = dict(server.switching.states)
    async with kept_server(root, state, switching=MemorySwitching(left)) as server:
        operation = await server.admin.act("rollback", "m", ActionRequest(delta=1))
        assert (operation.state, snapshot(server)) == ("DONE", "1+1")
        assert server.named_loader.requests == [("m", 1)]


@on_loop
async def test_rollback_without_a_version_goes_to_the_previous_one_else_to_the_delta_before(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2, 5)
    publish(root, 1, 5, replaces_from=3)
    async with kept_server(root, state) as server:
        assert snapshot(server) == "1+5"
        for expected in ("1+2", "1+1", "1"):
            await server.admin.act("rollback", "m", ActionRequest())
            assert snapshot(server) == expected
        with pytest.raises(NotFound, match="no previous version or delta to go back to"):
            await server.admin.act("rollback", "m", ActionRequest())
        await server.admin.act("unpin", "m", ActionRequest())
        write_version(root / "m", 2)
        publish(root, 2, 1)
        await server.look()
        assert snapshot(server) == "2+1"
        await server.admin.act("rollback", "m", ActionRequest())
        assert snapshot(server) == "1+5"


@on_loop
async def test_rollback_to_the_version_that_answers_holds_it_where_it_is(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1)
    async with kept_server(root, state) as server:
        await server.admin.act("rollback", "m", ActionRequest(version=1))
        publish(root, 1, 2)
        await server.look()
        assert (snapshot(server), server.admin.model("m").pinned) == ("1+1", "1+1")


@on_loop
async def test_rollback_to_what_is_not_there_is_an_error_and_changes_nothing(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2, 3)
    async with kept_server(root, state) as server:
        with pytest.raises(NotFound, match="version 1: no delta 9; the newest is 3"):
            await server.admin.act("rollback", "m", ActionRequest(version=1, delta=9))
        with pytest.raises(InvalidInput, match="load takes no delta"):
            await server.admin.act("load", "m", ActionRequest(version=1, delta=1))
        publish(root, 1, 2, broken="cut off")
        operation = await server.admin.act("rollback", "m", ActionRequest(delta=2))
        assert (operation.state, operation.error) == ("FAILED", "delta 2: cut off")
        assert (snapshot(server), server.admin.model("m").pinned) == ("1+3", None)
        assert server.admin.model("m").versions[0].last_error is None
        await server.admin.act("unload", "m", ActionRequest())
        with pytest.raises(NotFound, match="no version that answers; name one"):
            await server.admin.act("rollback", "m", ActionRequest(delta=2))


@on_loop
async def test_rollback_to_a_delta_of_a_version_that_is_not_in_memory(
    root: Path, state: Path
) -> None:
    for version in (1, 2, 3):
        write_version(root / "m", version)
    publish(root, 1, 1, 2, 3)
    async with kept_server(root, state) as server:
        operation = await server.admin.act("rollback", "m", ActionRequest(version=1, delta=2))
        assert (operation.state, snapshot(server)) == ("DONE", "1+2")
        publish(root, 2, 1, 2)
        publish(root, 2, 2, broken="bad", replaces_from=1)
        await server.look()
        operation = await server.admin.act("rollback", "m", ActionRequest(version=2, delta=2))
        assert (operation.state, operation.error) == ("FAILED", "delta 2: bad")
        assert snapshot(server) == "1+2"
        operation = await server.admin.act("rollback", "m", ActionRequest(version=2))
        assert (operation.state, snapshot(server)) == ("DONE", "2+1")
        assert server.admin.model("m").pinned == "2+1"


@on_loop
async def test_a_hold_whose_delta_is_gone_comes_up_below_it(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    publish(root, 1, 1, 2, 3, 4)
    async with kept_server(root, state) as server:
        await server.admin.act("rollback", "m", ActionRequest(delta=3))
    publish(root, 1, 3, broken="cut off")
    async with kept_server(root, state, launch="two") as server:
        assert (snapshot(server), server.admin.model("m").pinned) == ("1+2", "1+3")
        assert server.counts.failures["m", "checksum"] == 1


@on_loop
async def test_deltas_before_are_retained_as_serving_yaml_says(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    (root / "m" / "serving.yaml").write_text("keep_previous: 2\n")
    async with kept_server(root, state) as server:
        for delta in range(1, 6):
            publish(root, 1, delta)
            await server.look()
        shelf = server.keeping.keeper("m").kept.shelf
        assert shelf.retained.deltas(1) == (3, 4)
        assert server.state().retain == 2
        assert {plan.delta for plan in shelf.plans} == {0, 3, 4, 5}


# --- catching up ------------------------------------------------------------------------------


@on_loop
async def test_a_new_version_is_switched_to_once_its_deltas_have_caught_up(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1, event_time=100.0)
    publish(root, 1, 1, event_time=200.0)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2, event_time=150.0)
        publish(root, 2, 1, event_time=160.0)
        await server.look()
        assert snapshot(server) == "1+1"
        error = server.admin.model("m").last_error
        assert error is not None
        assert (error.version, error.reason) == (2, "behind")
        for delta, event_time in ((2, 170.0), (3, 180.0), (4, 199.0)):
            publish(root, 2, delta, event_time=event_time)
            await server.look()
        assert server.named_loader.requests == [("m", 1), ("m", 2)]  # not over and over
        publish(root, 2, 5, event_time=201.0)
        await server.look()
        assert snapshot(server) == "2+5"
        assert server.named_loader.requests == [("m", 1), ("m", 2), ("m", 2)]


@on_loop
async def test_a_version_whose_way_to_its_newest_delta_is_barred_is_not_loaded_over_and_over(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1, event_time=100.0)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2, event_time=50.0)
        publish(root, 2, 1, broken="cut off", event_time=120.0)
        await server.look()
        for delta in (2, 3, 4):
            publish(root, 2, delta, event_time=120.0 + delta)
            await server.look()
        assert server.named_loader.requests == [("m", 1), ("m", 2)]
        assert snapshot(server) == "1"
        publish(root, 2, 5, event_time=130.0, replaces_from=1)
        await server.look()
        assert snapshot(server) == "2+5"
