"""Models kept at what they should serve, over a folder, without processes."""

import asyncio
import errno
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from anabranch_server.administration import ActionRequest
from anabranch_server.supervisor.holds import Records
from anabranch_testing.event_loops import on_loop
from anabranch_testing.keepers import KeptServer, MemorySwitching, kept_server, write_version
from anabranch_wire.errors import (
    Conflict,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    NotFound,
    Unavailable,
)


def reloads(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    """The reload lines so far: kind, version, result, reason."""
    return [
        (line["kind"], line["version"], line["result"], line.get("reason"))
        for line in map(vars, caplog.records)
        if line.get("event") == "reload"
    ]


def make_unwritable(folder: Path) -> None:
    """Put a file where the folder was."""
    shutil.rmtree(folder)
    folder.write_text("a file")


# --- looks ------------------------------------------------------------------------------------


@on_loop
async def test_at_the_start_the_newest_good_version_of_each_model_is_served(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "a", 1)
    write_version(root / "a", 2, broken="model.onnx: damaged")
    write_version(root / "b", 7, notes=["rows depend on each other"])
    with caplog.at_level(logging.INFO):
        async with kept_server(root, state) as server:
            assert server.served("a") == ((1,), 1)
            assert server.served("b") == ((7,), 7)
            assert server.admin.snapshots() == {"a": "1", "b": "7"}
            view = server.admin.model("a")
            assert (view.state, view.last_error and view.last_error.version) == ("READY", 2)
            assert server.counts.reloads["a", "version", "ok"] == 1
            assert server.counts.failures["a", "checksum"] == 1
    assert sorted(reloads(caplog), key=str) == [
        ("version", 1, "ok", None),
        ("version", 2, "failed", "checksum"),
        ("version", 7, "ok", None),
    ]
    assert "version 7: rows depend on each other" in caplog.text


@on_loop
async def test_a_new_version_is_switched_to_and_the_last_one_kept(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        for version in (2, 3):
            write_version(root / "m", version, published=3e9)
            await server.look()
        assert server.served() == ((3,), 3)
        assert [plan.version for plan in server.state().versions] == [2, 3]
        view = server.admin.model("m")
        assert [(v.version, v.state, v.kept) for v in view.versions] == [
            (3, "READY", False),
            (2, "UNAVAILABLE", True),
        ]
        assert [(e.version, e.state, e.reason) for e in server.admin.index(only_ready=False)] == [
            ("1", "UNAVAILABLE", "not among the versions that are to be served"),
            ("2", "UNAVAILABLE", "kept in memory for a rollback"),
            ("3", "READY", ""),
        ]
        assert [entry.version for entry in server.admin.index(only_ready=True)] == ["3"]
        assert server.counts.publish_to_served["m", "version"].count == 2
        assert server.named_loader.last is not None
        assert server.named_loader.last.priority == "idle"
        assert len(server.named_loader.last.in_use) == 2


@on_loop
async def test_a_broken_version_is_tried_again_only_when_its_files_change(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2, broken="cut off")
        for _ in range(3):
            await server.look()
        assert server.named_loader.requests == [("m", 1), ("m", 2)]
        assert server.served() == ((1,), 1)
        write_version(root / "m", 2, broken="", size="another")
        await server.look()
        assert server.named_loader.requests == [("m", 1), ("m", 2), ("m", 2)]
        assert server.served() == ((2,), 2)


@on_loop
async def test_files_that_change_under_a_served_version_make_it_load_anew(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        first = server.state().versions[0].identity
        write_version(root / "m", 1, other=1)
        await server.look()
        second = server.state().versions[0].identity
        assert second != first
        write_version(root / "m", 1, broken="worse")
        await server.look()
        assert server.state().versions[0].identity == second


@on_loop
async def test_models_come_and_go(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept_server(root, state) as server:
        assert server.admin.models() == []
        write_version(root / "m", 1)
        await server.look()
        assert server.served() == ((1,), 1)
        shutil.rmtree(root / "m")
        with caplog.at_level(logging.INFO):
            await server.look()
        assert server.switching.states == {}
        assert "model m is gone from the repository" in caplog.text
        with pytest.raises(NotFound, match="model 'm' is not known; known: none"):
            server.admin.model("m")
        write_version(root / "m", 2)
        await server.look()
        assert server.served() == ((2,), 2)


@on_loop
async def test_a_version_that_is_deleted_while_nothing_else_is_left_stays(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    write_version(root / "m", 2)
    (root / "m" / "serving.yaml").write_text("versions: all\n")
    async with kept_server(root, state) as server:
        assert server.served() == ((1, 2), 2)
        shutil.rmtree(root / "m" / "2")
        await server.look()
        assert server.served() == ((1,), 1)
        shutil.rmtree(root / "m" / "1")
        await server.look()
        assert server.served() == ((1,), 1)


@on_loop
async def test_models_asked_for_by_name_hold_readiness_back_until_they_are_there(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "other", 1)
    async with kept_server(root, state, named=("m",)) as server:
        assert server.switching.states.keys() == {"m"}
        assert (server.state().versions, server.state().required) == ((), True)
        assert "the repository has no such model" in caplog.text
        write_version(root / "m", 1)
        await server.look()
        assert server.served() == ((1,), 1)
    with pytest.raises(InvalidInput):
        KeptServer(root, state, named=("../x",))


# --- serving.yaml -----------------------------------------------------------------------------


@on_loop
async def test_a_changed_serving_yaml_is_followed_and_a_bad_one_reported(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for version in (1, 2):
        write_version(root / "m", version)
    serving = root / "m" / "serving.yaml"
    async with kept_server(root, state) as server:
        serving.write_text("queue: {max_requests: 7}\n")
        await server.look()
        assert server.state().queue.max_requests == 7
        assert server.served() == ((2,), 2)
        serving.write_text("queue: {max_requests: many}\n")
        await server.look()
        assert server.state().queue.max_requests == 7
        error = server.admin.model("m").last_error
        assert error is not None
        assert error.error.startswith("serving.yaml: line 1: queue.max_requests")
        serving.write_text("versions: {latest: 2}\nlabels: {old: 1}\n")
        await server.look()
        assert server.served() == ((1, 2), 2)
        assert server.admin.model("m").policy == {"latest": 2}
        serving.write_bytes(b"\xff")
        await server.look()
        assert server.served() == ((1, 2), 2)
    assert ("config", None, "failed", "invalid") in reloads(caplog)


@on_loop
async def test_a_model_whose_first_serving_yaml_is_bad_is_known_and_not_ready(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    (root / "m" / "serving.yaml").write_text("executers: {}\n")
    async with kept_server(root, state) as server:
        assert server.served() == ((), None)
        assert server.admin.model("m").state == "UNAVAILABLE"
        assert server.admin.model("m").policy is None
        (root / "m" / "serving.yaml").unlink()
        await server.look()
        assert server.served() == ((1,), 1)


@on_loop
async def test_processor_sets_have_to_be_as_many_as_executors(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    (root / "m" / "serving.yaml").write_text("executors: {per_worker: 1, cpusets: '0;1;2'}\n")
    async with kept_server(root, state) as server:
        error = server.admin.model("m").last_error
        assert error is not None
        assert "3 entries, expected 2" in error.error
        (root / "m" / "serving.yaml").write_text(
            "executors: {per_worker: 1, cpusets: '0;1-2', select: mod}\n"
            "batching: {max_rows: 8, split_rows: off}\n"
        )
        await server.look()
        group = server.state().group
        assert (group.cpusets, group.select) == (((0,), (1, 2)), "mod")
        assert (group.max_rows, group.split_rows) == (8, 0)


# --- catching up ------------------------------------------------------------------------------


@on_loop
async def test_a_version_behind_what_is_served_waits_and_says_so(root: Path, state: Path) -> None:
    write_version(root / "m", 1, event_time=200.0)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2, event_time=100.0)
        await server.look()
        await server.look()
        assert server.named_loader.requests == [("m", 1), ("m", 2)]
        assert server.served() == ((1,), 1)
        error = server.admin.model("m").last_error
        assert error is not None
        assert (error.version, error.reason) == (2, "behind")
        assert "older events than the version that is served" in error.error
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert operation.state == "FAILED"
        assert operation.error is not None
        assert operation.error.startswith("version 2 is not served: it has seen older events")
        await server.admin.act("load", "m", ActionRequest(version=2))
        assert server.served()[1] == 2


# --- workers ----------------------------------------------------------------------------------


@on_loop
async def test_a_version_that_workers_cannot_prepare_makes_room_for_an_older_one(
    root: Path, state: Path
) -> None:
    for version in (1, 2):
        write_version(root / "m", version)
    switching = MemorySwitching()
    switching.refuse = lambda plan: (
        DeadlineExceeded("worker 0 did not prepare it within 60 s")
        if plan is not None and 2 in plan.served
        else None
    )
    async with kept_server(root, state, switching=switching) as server:
        assert server.served() == ((1,), 1)
        assert server.counts.failures["m", "prepare_timeout"] == 1
        await server.look()
        assert server.named_loader.requests == [("m", 2), ("m", 1)]
        switching.refuse = lambda plan: None
        operation = await server.admin.act("reload", "m", ActionRequest(force=True))
        assert operation.state == "DONE"
        assert server.served() == ((2,), 2)


@on_loop
async def test_workers_that_are_not_there_are_no_fault_of_the_version(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    switching = MemorySwitching()
    switching.refuse = lambda plan: Unavailable("no worker is alive")
    async with kept_server(root, state, switching=switching) as server:
        assert switching.switches == []
        switching.refuse = lambda plan: None
        operation = await server.admin.act("load", "m", ActionRequest(version=1))
        assert operation.state == "DONE"
        assert server.served() == ((1,), 1)


@on_loop
async def test_a_change_that_no_version_is_to_blame_for_is_not_tried_over_and_over(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        refused: list[object] = []

        def refuse(plan: object) -> Internal:
            refused.append(plan)
            return Internal("cannot rebuild")

        server.switching.refuse = refuse
        (root / "m" / "serving.yaml").write_text("executors: {per_worker: 3}\n")
        await server.look()
        server.keeping.nudge()
        await server.settled()
        assert len(refused) == 1
        assert server.served() == ((1,), 1)


@on_loop
async def test_a_decision_that_cannot_be_written_changes_nothing(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        make_unwritable(state)
        write_version(root / "m", 2)
        await server.look()
        assert server.served() == ((1,), 1)
        assert "state_dir: what model 'm' is to serve cannot be written" in caplog.text
        operation = await server.admin.act("rollback", "m", ActionRequest(version=1))
        assert operation.state == "FAILED"
        assert server.admin.model("m").pinned is None
        with pytest.raises(Unavailable):
            await server.admin.set_labels("m", {"x": 1})


@on_loop
async def test_a_full_state_dir_is_counted_as_a_full_disk(
    root: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:

        def refuse(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        write_version(root / "m", 2)
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", refuse)
            await server.look()
        error = server.admin.model("m").last_error
        assert error is not None
        assert (error.reason, error.error) == (
            "disk_full",
            "state_dir: what model 'm' is to serve cannot be written: No space left on device",
        )
        assert server.served() == ((1,), 1)


# --- people -----------------------------------------------------------------------------------


@on_loop
async def test_rollback_is_instant_pins_and_survives_restarts_until_unpin(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        with caplog.at_level(logging.INFO):
            operation = await server.admin.act("rollback", "m", ActionRequest())
        assert (operation.state, operation.action, operation.error) == ("DONE", "rollback", None)
        assert ("rollback", 1, "ok", None) in reloads(caplog)
        assert server.served() == ((1,), 1)
        assert [plan.version for plan in server.state().versions] == [1, 2]
        assert server.named_loader.requests == [("m", 1), ("m", 2)]
        write_version(root / "m", 3)
        await server.look()
        assert server.served() == ((1,), 1)
        assert server.admin.model("m").pinned == "1"
        assert server.counts.reloads["m", "rollback", "ok"] == 1
    async with kept_server(root, state, launch="two") as server:
        assert server.served() == ((1,), 1)
        assert server.admin.model("m").pinned == "1"
        operation = await server.admin.act("unpin", "m", ActionRequest())
        assert operation.state == "DONE"
        assert server.served() == ((3,), 3)
    async with kept_server(root, state, launch="three") as server:
        assert server.admin.model("m").pinned is None


@on_loop
async def test_rollback_loads_what_is_not_in_memory_and_fails_without_a_change(
    root: Path, state: Path
) -> None:
    for version in (1, 2, 3):
        write_version(root / "m", version)
    async with kept_server(root, state) as server:
        assert (await server.admin.act("rollback", "m", ActionRequest(version=1))).state == "DONE"
        assert server.served() == ((1,), 1)
        write_version(root / "m", 2, broken="gone bad")
        await server.look()
        operation = await server.admin.act("rollback", "m", ActionRequest(version=2))
        assert (operation.state, operation.error) == ("FAILED", "version 2 is not served: gone bad")
        assert server.admin.model("m").pinned == "1"
        server.switching.refuse = lambda plan: Internal("no room")
        write_version(root / "m", 2)
        await server.look()
        operation = await server.admin.act("rollback", "m", ActionRequest(version=2))
        assert (operation.state, operation.error) == ("FAILED", "version 2 is not served: no room")
        assert server.admin.model("m").pinned == "1"
        assert server.served() == ((1,), 1)
        with pytest.raises(NotFound, match="no previous version"):
            await server.admin.act("rollback", "m", ActionRequest())
        with pytest.raises(NotFound, match="no complete version 9"):
            await server.admin.act("rollback", "m", ActionRequest(version=9))
        with pytest.raises(NotFound, match="version 1: no delta 3; it has none"):
            await server.admin.act("rollback", "m", ActionRequest(version=1, delta=3))


@on_loop
async def test_rollback_goes_to_what_answered_and_not_to_what_was_only_named(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    (root / "m" / "serving.yaml").write_text("format: 1\nlabels: {canary: 4}\n")
    async with kept_server(root, state) as server:
        for version in (2, 3, 4):
            write_version(root / "m", version)
        await server.admin.act("load", "m", ActionRequest(version=2))
        write_version(root / "m", 5)
        await server.look()
        assert server.served() == ((2, 4, 5), 5)
    async with kept_server(root, state, launch="two") as server:
        await server.admin.act("load", "m", ActionRequest(version=2))
        await server.admin.act("unload", "m", ActionRequest(version=2))
        write_version(root / "m", 6)
        await server.look()

        await server.admin.act("rollback", "m", ActionRequest())
        assert server.served() == ((4, 5), 5)
        await server.admin.act("rollback", "m", ActionRequest())
        assert server.served()[1] == 4  # the newest at the second look, before 5 came
        await server.admin.act("rollback", "m", ActionRequest())
        assert server.served() == ((1, 4), 1)  # 2 and 3 never answered


@on_loop
async def test_without_a_past_rollback_goes_to_the_newest_that_nobody_named(
    root: Path, state: Path
) -> None:
    for version in (1, 2, 3, 4):
        write_version(root / "m", version)
    (root / "m" / "serving.yaml").write_text("format: 1\nlabels: {canary: 3}\n")
    async with kept_server(root, state) as server:
        await server.admin.act("load", "m", ActionRequest(version=2))
        assert server.served() == ((2, 3, 4), 4)

        await server.admin.act("rollback", "m", ActionRequest())

        assert server.served()[1] == 1


@on_loop
async def test_refused_versions_are_shown_with_the_reason_until_they_are_good_or_gone(
    root: Path, state: Path
) -> None:
    def shown(server: KeptServer) -> list[tuple[int, str, str | None]]:
        versions = server.admin.model("m").versions
        return [(one.version, one.state, one.last_error) for one in versions]

    write_version(root / "m", 1)
    write_version(root / "m", 2, broken="cut off")
    async with kept_server(root, state) as server:
        assert shown(server) == [(2, "UNAVAILABLE", "cut off"), (1, "READY", None)]
        entries = server.admin.index(only_ready=False)
        assert [(one.version, one.state, one.reason) for one in entries] == [
            ("1", "READY", ""),
            ("2", "UNAVAILABLE", "cut off"),
        ]

        write_version(root / "m", 1, broken="changed for the worse")
        write_version(root / "m", 2)
        server.switching.refuse = lambda plan: InvalidInput("no such operator")
        await server.look()
        assert shown(server) == [
            (2, "UNAVAILABLE", "no such operator"),
            (1, "READY", "changed for the worse"),
        ]

        server.switching.refuse = lambda plan: None
        await server.admin.act("load", "m", ActionRequest())
        assert shown(server)[0] == (2, "READY", None)

        write_version(root / "m", 3, broken="cut off")
        await server.look()
        assert shown(server)[0] == (3, "UNAVAILABLE", "cut off")
        shutil.rmtree(root / "m" / "3")
        await server.look()
        assert [number for number, _, _ in shown(server)] == [2]


@on_loop
async def test_reload_unpins_and_says_why_the_newest_version_is_not_served(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    write_version(root / "m", 2)
    async with kept_server(root, state) as server:
        await server.admin.act("rollback", "m", ActionRequest(version=1))
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert (operation.state, server.served()) == ("DONE", ((1,), 1))
        operation = await server.admin.act("reload", "m", ActionRequest(unpin=True))
        assert (operation.state, server.served()) == ("DONE", ((2,), 2))
        write_version(root / "m", 3, broken="cut off")
        operation = await server.admin.act("reload", "m", ActionRequest())
        why = ("FAILED", "version 3 is not served: cut off")
        assert (operation.state, operation.error) == why
        operation = await server.admin.act("reload", "m", ActionRequest())
        assert (operation.state, operation.error) == why
        assert len(server.named_loader.requests) == 3
        with pytest.raises(InvalidInput, match="takes no version"):
            await server.admin.act("reload", "m", ActionRequest(version=3))


@on_loop
async def test_versions_are_loaded_and_unloaded_by_number(root: Path, state: Path) -> None:
    for version in (1, 2, 3):
        write_version(root / "m", version)
    async with kept_server(root, state) as server:
        operation = await server.admin.act("load", "m", ActionRequest(version=1))
        assert (operation.state, server.served()) == ("DONE", ((1, 3), 3))
        operation = await server.admin.act("unload", "m", ActionRequest(version=1))
        assert (operation.state, server.served()) == ("DONE", ((3,), 3))
        assert len(server.state().versions) == 1
        with pytest.raises(NotFound, match="no loaded version 1"):
            await server.admin.act("unload", "m", ActionRequest(version=1))
        await server.admin.act("unload", "m", ActionRequest(version=3))
        assert server.served() == ((), None)
        write_version(root / "m", 4)
        await server.admin.act("load", "m", ActionRequest(version=4))
        assert server.served() == ((4,), 4)
        write_version(root / "m", 5)
        await server.look()
        assert server.served() == ((5,), 5)
        await server.admin.act("rollback", "m", ActionRequest(version=4))
        with pytest.raises(InvalidInput, match="version 4 is pinned; unpin the model first"):
            await server.admin.act("unload", "m", ActionRequest(version=4))


@on_loop
async def test_an_unloaded_model_stays_so_until_it_is_loaded(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await server.admin.act("unload", "m", ActionRequest())
        assert (server.served(), server.state().required) == (((), None), False)
        assert server.state().versions == ()
        write_version(root / "m", 2)
        await server.look()
        assert server.served() == ((), None)
        assert server.admin.index(only_ready=False)[0].reason == "unloaded"
        operation = await server.admin.act("load", "m", ActionRequest())
        assert (operation.state, server.served()) == ("DONE", ((2,), 2))
        assert server.state().required
        await server.admin.act("unload", "m", ActionRequest())
        for version in (1, 2):
            write_version(root / "m", version, broken="bad")
        await server.look()
        operation = await server.admin.act("load", "m", ActionRequest())
        assert (operation.state, operation.error) == ("FAILED", "version 2 is not served: bad")


@on_loop
async def test_labels_of_admins_win_are_kept_and_can_be_removed(root: Path, state: Path) -> None:
    for version in (1, 2):
        write_version(root / "m", version)
    (root / "m" / "serving.yaml").write_text("labels: {stable: 2}\n")
    async with kept_server(root, state) as server:
        view = await server.admin.set_labels("m", {"stable": 1, "next": 7})
        assert view.labels == {"stable": 1, "next": 7}
        assert server.served() == ((1, 2), 2)
        assert view.last_error is not None
        assert view.last_error.version == 7
        assert "no such version, but label 'next' asks for it" in view.last_error.error
    async with kept_server(root, state, launch="two") as server:
        assert server.admin.model("m").labels == {"stable": 1, "next": 7}
        view = await server.admin.set_labels("m", {"stable": None, "next": None})
        assert view.labels == {"stable": 2}
        assert server.served() == ((2,), 2)
        for labels in ({"9": 1}, {"x": 0}, {"x": 10**18}):
            with pytest.raises(InvalidInput):
                await server.admin.set_labels("m", labels)


# --- operations -------------------------------------------------------------------------------


@on_loop
async def test_one_action_at_a_time_and_callers_wait_as_long_as_they_like(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    write_version(root / "m", 2)
    async with kept_server(root, state) as server:
        server.named_loader.gate.clear()
        begun = await server.admin.act("load", "m", ActionRequest(version=1, wait_s=0.01))
        assert (begun.state, begun.phase, begun.progress) == ("RUNNING", "verifying", 0.25)
        assert begun.id == "op-000001"
        with pytest.raises(Conflict, match=r"load \(op-000001\) is at work"):
            await server.admin.act("unpin", "m", ActionRequest())
        assert [v.state for v in server.admin.model("m").versions] == ["READY", "LOADING"]
        server.named_loader.gate.set()
        await server.settled()
        ended = server.admin.operation("op-000001")
        assert (ended.state, ended.phase) == ("DONE", None)
        assert ended.ended is not None
        assert ended.started <= ended.ended
        assert [view.id for view in server.admin.operations()] == ["op-000001"]
        with pytest.raises(NotFound, match="operation 'op-000002' is not known"):
            server.admin.operation("op-000002")
        server.named_loader.gate.clear()
        write_version(root / "m", 3)
        running = await server.admin.act("load", "m", ActionRequest(version=3, wait_s=0))
        assert running.state == "RUNNING"
    assert server.admin.operation("op-000002").state == "CANCELLED"


@on_loop
async def test_what_is_published_a_moment_ago_is_found_without_waiting_for_a_poll(
    root: Path, state: Path
) -> None:
    async with kept_server(root, state) as server:
        write_version(root / "m", 1)
        operation = await server.admin.act("load", "m", ActionRequest(version=1))
        assert (operation.state, server.served()) == ("DONE", ((1,), 1))
        with pytest.raises(NotFound, match="model 'x' is not known; known: m"):
            await server.admin.act("load", "x", ActionRequest())


@on_loop
async def test_a_fault_of_ours_ends_the_action_and_not_the_model(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:

        def refuse(plan: object) -> Internal:
            raise ZeroDivisionError

        server.switching.refuse = refuse
        operation = await server.admin.act("unload", "m", ActionRequest())
        assert (operation.state, operation.error) == ("FAILED", "ZeroDivisionError during unload")
        with pytest.raises(Internal, match="ZeroDivisionError while labels were set"):
            await server.admin.set_labels("m", {"x": 1})
        assert "model m: keeping it failed" in caplog.text
        server.switching.refuse = lambda plan: None
        operation = await server.admin.act("unload", "m", ActionRequest())
        assert (operation.state, server.served()) == ("DONE", ((), None))


@on_loop
async def test_who_waits_for_labels_when_the_server_stops_is_told(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.switching.gate.clear()
        waiting = asyncio.create_task(server.admin.set_labels("m", {"x": 1}))
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


@on_loop
async def test_a_model_that_workers_cannot_let_go_is_tried_again(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.switching.refuse = lambda plan: Unavailable("no worker is alive")
        shutil.rmtree(root / "m")
        await server.look()
        assert server.served() == ((1,), 1)
        server.switching.refuse = lambda plan: None
        server.keeping.nudge()
        await server.settled()
        assert server.switching.states == {}


# --- memory -----------------------------------------------------------------------------------


@on_loop
async def test_kept_versions_give_way_and_what_does_not_fit_is_refused_with_the_numbers(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    size = len("{}")
    (root / "m" / "serving.yaml").write_text(f"memory: {{max_bytes: {2 * 2 * size}}}\n")
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [1, 2]
        write_version(root / "m", 3)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [2, 3]
        lean = [state for _, state in server.switching.switches][-2]
        assert lean is not None
        assert [plan.version for plan in lean.versions] == [2]
        write_version(root / "m", 4, much="more")
        await server.look()
        assert server.served() == ((3,), 3)
        error = server.admin.model("m").last_error
        assert error is not None
        assert error.reason == "too_large"
        assert "bytes in each of 2 workers beside 2 of what is served" in error.error
        assert "memory.max_bytes allows 8 in all" in error.error


@on_loop
async def test_the_machine_has_to_have_room_for_every_worker(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state, available_bytes=3) as server:
        assert server.served() == ((), None)
        server.available_bytes = 4
        operation = await server.admin.act("reload", "m", ActionRequest(force=True))
        assert (operation.state, server.served()) == ("DONE", ((1,), 1))
        assert server.named_loader.last is not None
        assert server.named_loader.last.available_bytes == 2


@on_loop
async def test_kept_versions_give_way_to_tables_as_to_graphs(root: Path, state: Path) -> None:
    write_version(root / "m", 1, tables=1000)
    async with kept_server(root, state, available_bytes=3000) as server:
        server.available_bytes = 2000
        write_version(root / "m", 2, tables=1000)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [1, 2]
        server.available_bytes = 600
        write_version(root / "m", 3, tables=1500)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [2, 3]
        lean = [state for _, state in server.switching.switches][-2]
        assert lean is not None
        assert [plan.version for plan in lean.versions] == [2]


@on_loop
async def test_kept_versions_give_way_to_item_tables_as_to_tables(root: Path, state: Path) -> None:
    write_version(root / "m", 1, items=1000)
    async with kept_server(root, state, available_bytes=3000) as server:
        server.available_bytes = 2000
        write_version(root / "m", 2, items=600, tables=400)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [1, 2]
        server.available_bytes = 600
        write_version(root / "m", 3, items=1500)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [2, 3]


@on_loop
async def test_kept_versions_stay_where_tables_do_not_fit_even_without_them(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1, tables=1000)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2, tables=1000)
        await server.look()
        server.available_bytes = 600
        write_version(root / "m", 3, tables=1700)
        await server.look()
        assert [plan.version for plan in server.state().versions] == [1, 2]
        error = server.admin.model("m").last_error
        assert error is not None
        assert error.reason == "too_large"
        assert "and 1700 for its tables beside what is served" in error.error
        assert "the machine has 600 left" in error.error


@on_loop
async def test_what_a_model_may_take_counts_tables_once(root: Path, state: Path) -> None:
    write_version(root / "m", 1, tables=1000)
    graphs = 2 * 2 * len(json.dumps({"tables": 1000}))
    (root / "m" / "serving.yaml").write_text(f"memory: {{max_bytes: {graphs + 2000}}}\n")
    async with kept_server(root, state) as server:
        for version, kept in ((2, [1, 2]), (3, [2, 3])):
            write_version(root / "m", version, tables=1000)
            await server.look()
            assert [plan.version for plan in server.state().versions] == kept
        write_version(root / "m", 4, tables=1001)
        await server.look()
        assert server.served() == ((3,), 3)
        error = server.admin.model("m").last_error
        assert error is not None
        assert f"memory.max_bytes allows {graphs + 2000} in all" in error.error


# --- restarts ---------------------------------------------------------------------------------


@on_loop
async def test_a_new_supervisor_takes_what_workers_serve_without_loading_it(
    root: Path, state: Path
) -> None:
    for version in (1, 2, 3):
        write_version(root / "m", version)
    async with kept_server(root, state) as server:
        await server.admin.act("load", "m", ActionRequest(version=1))
        await server.admin.act("unload", "m", ActionRequest(version=3))
        left = dict(server.switching.states)
    async with kept_server(root, state, switching=MemorySwitching(left)) as server:
        assert server.named_loader.requests == []
        assert server.switching.switches == []
        assert server.served() == ((1,), 1)
        write_version(root / "m", 1, other=1)
        await server.look()
        assert server.named_loader.requests == [("m", 1)]


@on_loop
async def test_only_what_differs_leads_to_work_after_a_restart(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    write_version(root / "gone", 1)
    async with kept_server(root, state) as server:
        left = dict(server.switching.states)
    shutil.rmtree(root / "gone")
    shutil.rmtree(state)
    write_version(root / "m", 2)
    async with kept_server(root, state, switching=MemorySwitching(left)) as server:
        assert server.named_loader.requests == [("m", 2)]
        assert server.switching.states.keys() == {"m"}
        assert server.served() == ((2,), 2)


@on_loop
async def test_files_that_changed_while_no_supervisor_lived_are_loaded(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        left = dict(server.switching.states)
    write_version(root / "m", 1, other=1)
    async with kept_server(root, state, switching=MemorySwitching(left)) as server:
        assert server.named_loader.requests == [("m", 1)]


@on_loop
async def test_the_decision_is_written_down_with_its_epoch(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        await server.admin.set_labels("m", {"x": 2})
    record = Records(state).read("m")
    assert record is not None
    assert (record.launch, record.labels, record.history) == ("one", {"x": 2}, (1,))
    assert [one.version for one in record.versions] == [1, 2]
    assert record.epoch == len(server.switching.switches)
    assert record.committed is not None


# --- the start --------------------------------------------------------------------------------


@on_loop
async def test_the_start_waits_for_files_that_are_still_being_copied(
    root: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(root / "m", 1)
    (root / "m" / "serving.yaml").write_text("labels: {stable: 1}\n")
    server = KeptServer(root, state, settle_s=0.2, poll_s=0.02, wall_s=0.0)
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(server.keeping.run(server.watcher))
        await server.keeping.first_look_done.wait()
    assert server.served() == ((1,), 1)
    assert [vars(r)["models"] for r in caplog.records if vars(r).get("event") == "settling"] == [
        ["m"]
    ]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# --- workers that lack what is served -----------------------------------------------------------


@on_loop
async def test_what_a_worker_could_not_prepare_is_loaded_and_switched_to_again(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        before = server.state()
        server.named_loader.requests.clear()

        server.switching.lacking.add("m")
        server.keeping.miss("m")
        await server.settled()

        assert sorted(server.named_loader.requests) == [("m", 1), ("m", 2)]
        assert server.switching.switches[-1] == ("m", before)
        assert not server.switching.lacking
        assert server.switching.given_up == []


@on_loop
async def test_rows_of_a_supervisor_that_is_gone_are_switched_to_anew_without_a_load(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        before = server.state()
        server.named_loader.requests.clear()

        server.switching.orphaned.add("m")
        server.keeping.miss("m")
        await server.settled()

        assert server.named_loader.requests == []
        assert server.switching.switches[-1] == ("m", before)
        assert not server.switching.orphaned


@on_loop
async def test_rows_that_cannot_be_made_anew_are_loaded_once_more(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        refusals = [Unavailable("the segment is gone")]
        server.switching.refuse = lambda wanted: refusals.pop() if refusals else None
        server.named_loader.requests.clear()

        server.switching.orphaned.add("m")
        server.keeping.miss("m")
        await server.settled()

        assert server.named_loader.requests == [("m", 1)]
        assert not server.switching.orphaned
        assert server.switching.given_up == []


@on_loop
async def test_what_was_refused_for_want_of_older_files_is_tried_again_once_they_are_there(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.switching.refuse = lambda wanted: InvalidInput("version 1: no such file")
        write_version(root / "m", 2)
        await server.look()
        assert server.served() == ((1,), 1)

        server.switching.refuse = lambda wanted: None
        server.switching.lacking.add("m")
        server.keeping.miss("m")
        await server.settled()

        assert server.served() == ((2,), 2)


@on_loop
async def test_what_cannot_be_mended_is_given_up_and_tried_again_later(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        kept = server.keeping.keeper("m").kept
        server.switching.refuse = lambda wanted: InvalidInput("not here")
        server.switching.lacking.add("m")

        for _ in range(2):
            server.keeping.miss("m")
            await server.settled()

        assert server.named_loader.requests == [("m", 1), ("m", 1)]  # the start, one attempt
        assert server.switching.given_up == ["m", "m"]
        assert server.served() == ((1,), 1)
        again_s = kept.wake_at_s(asyncio.get_running_loop().time())
        assert again_s is not None
        assert 0 < again_s - asyncio.get_running_loop().time() <= 10.0
