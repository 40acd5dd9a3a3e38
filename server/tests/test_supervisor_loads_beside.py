"""What goes on for a model while one of its versions is looked at, without processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch_server.administration import Action, ActionRequest
from anabranch_server.processes.loader_messages import ApplyDeltas
from anabranch_server.supervisor import keeper_delta_faults, keeper_state
from anabranch_testing.event_loops import on_loop
from anabranch_testing.keepers import KeptServer, kept_server, write_version
from anabranch_testing.published_deltas import write_delta
from anabranch_testing.stand_ins import until


@asynccontextmanager
async def serving_two(root: Path, state: Path) -> AsyncIterator[KeptServer]:
    """Serve versions 1 and 2, of which 2 answers by default."""
    for version in (1, 2):
        write_version(root / "m", version)
    async with kept_server(root, state) as server:
        await server.admin.act("load", "m", ActionRequest(version=1, wait_s=20))
        yield server


async def begin_load(server: KeptServer, version: int, **told: object) -> None:
    """Publish a version, and wait until it is being looked at; that ends when the gate opens."""
    server.named_loader.load_gate.clear()
    server.named_loader.begun.clear()
    write_version(server.root / "m", version, **told)
    await server.watcher.look()
    await server.named_loader.begun.wait()


def snapshot(server: KeptServer) -> str:
    return server.admin.snapshots()["m"]


@on_loop
async def test_what_is_served_gets_its_deltas_while_another_version_is_looked_at(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await begin_load(server, 2)
        for delta in (1, 2):
            write_delta(root / "m" / "1", delta)
            await server.watcher.look()
            await until(lambda delta=delta: snapshot(server) == f"1+{delta}")  # type: ignore[misc]  # binds the value of the loop
        assert [one.state for one in server.admin.model("m").versions] == ["LOADING", "READY"]
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((2,), 2)
        assert server.named_loader.requests == [("m", 1), ("m", 2)]


@on_loop
async def test_so_it_does_while_somebody_has_one_loaded(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    write_version(root / "m", 2)
    async with kept_server(root, state) as server:
        server.named_loader.load_gate.clear()
        begun = await server.admin.act("load", "m", ActionRequest(version=1, wait_s=0.01))
        write_delta(root / "m" / "2", 1)
        await server.watcher.look()
        await until(lambda: snapshot(server) == "2+1")
        assert server.admin.operation(begun.id).state == "RUNNING"
        assert server.admin.operation(begun.id).phase == "verifying"
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((1, 2), 2)
        assert server.admin.operation(begun.id).state == "DONE"


@on_loop
async def test_deltas_that_cannot_be_applied_do_not_end_the_load(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await begin_load(server, 2)
        write_delta(root / "m" / "1", 1, extra={"broken": "cut off"})
        await server.watcher.look()
        await until(lambda: server.admin.model("m").last_error is not None)
        assert snapshot(server) == "1"
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((2,), 2)


@on_loop
async def test_a_rollback_does_not_wait_for_a_load(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        assert server.served() == ((2,), 2)
        await begin_load(server, 3)
        rolled = await server.admin.act("rollback", "m", ActionRequest(wait_s=20))
        assert (rolled.state, server.served()) == ("DONE", ((1,), 1))
        assert not server.named_loader.load_gate.is_set()
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((1,), 1), "the hold keeps what was being looked at away"
        await server.admin.act("unpin", "m", ActionRequest())
        assert server.served() == ((3,), 3)


@on_loop
async def test_a_load_that_gave_way_begins_anew(root: Path, state: Path) -> None:
    for version in (1, 2):
        write_version(root / "m", version)
    (root / "m" / "serving.yaml").write_text("format: 1\nversions: {latest: 2}\n")
    async with kept_server(root, state) as server:
        assert server.served() == ((1, 2), 2)
        await begin_load(server, 3)
        begun = await server.admin.act("unload", "m", ActionRequest(version=1, wait_s=0.1))
        await until(lambda: server.served() == ((2,), 2))
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.admin.operation(begun.id).state == "DONE"
        assert server.served() == ((2, 3), 3)
        assert server.named_loader.requests == [("m", 2), ("m", 1), ("m", 3), ("m", 3)]


@on_loop
async def test_versions_that_come_faster_than_they_are_looked_at_are_served_all_the_same(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.named_loader.is_turnstile = True
        await begin_load(server, 2)
        for coming in (3, 4, 5):
            write_version(root / "m", coming)
            await server.watcher.look()
            server.named_loader.begun.clear()
            server.named_loader.load_gate.set()
            await server.named_loader.begun.wait()  # the next one's turn
            assert server.served() == ((coming - 1,), coming - 1)
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((5,), 5)
        defaults = [one.default for _, one in server.switching.switches if one]
        assert defaults == [1, 2, 3, 4, 5]


@on_loop
async def test_room_is_made_for_a_load_beside_deltas_of_what_is_served(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1, tables=1000)
    (root / "m" / "serving.yaml").write_text(
        "format: 1\nkeep_previous: 1\nmemory: {max_bytes: 2600}\n"
    )
    async with kept_server(root, state) as server:
        write_version(root / "m", 2, tables=1000)
        await server.look()
        assert [one.version for one in server.state().versions] == [1, 2]
        server.switching.gate.clear()
        write_version(root / "m", 3, tables=1000)
        write_delta(root / "m" / "2", 1)
        await server.watcher.look()
        server.switching.gate.set()
        await server.settled()
        assert server.served() == ((3,), 3)
        states = [one for _, one in server.switching.switches if one]
        assert [(p.version, p.delta) for p in states[-1].versions][-1] == (3, 0)
        assert all({p.version for p in one.versions} >= set(one.served) for one in states)


@on_loop
async def test_what_is_asked_for_meanwhile_is_done_after_the_load(root: Path, state: Path) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await begin_load(server, 2)
        asked = asyncio.create_task(server.admin.set_labels("m", {"canary": 2}))
        begun = await server.admin.act("load", "m", ActionRequest(version=2, wait_s=0.05))
        assert (begun.state, asked.done()) == ("RUNNING", False)
        server.named_loader.load_gate.set()
        await asked
        await server.settled()
        assert server.admin.operation(begun.id).state == "DONE"
        assert server.state().labels == {"canary": 2}
        assert server.named_loader.requests == [("m", 1), ("m", 2)]


@on_loop
async def test_what_is_mended_while_a_version_is_looked_at_is_seen_after_it(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        loader = server.named_loader

        def hold_the_next(request: ApplyDeltas) -> None:
            loader.gate.clear()

        await begin_load(server, 2)
        write_delta(root / "m" / "2", 1)
        write_delta(root / "m" / "2", 2, replaces_from=1, extra={"broken": "cut off"})
        await server.watcher.look()
        loader.refuse = hold_the_next
        loader.load_gate.set()
        await until(lambda: len(loader.applied) == 2)  # the bad one is known, the load goes on
        write_delta(root / "m" / "2", 2, replaces_from=1)
        await server.watcher.look()
        await asyncio.sleep(0)
        loader.refuse = lambda request: None
        loader.gate.set()
        await until(lambda: snapshot(server) == "2+2")


@on_loop
async def test_a_rollback_ends_the_look_at_a_version_that_was_replaced_in_place(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        write_version(root / "m", 2)
        await server.look()
        await begin_load(server, 2, retrained=True)
        rolled = await server.admin.act("rollback", "m", ActionRequest(wait_s=20))
        assert (rolled.state, server.served()) == ("DONE", ((1,), 1))
        assert len(server.named_loader.requests) == 3


@on_loop
async def test_a_rollback_is_in_force_before_what_a_label_names_is_looked_at(
    root: Path, state: Path
) -> None:
    async with serving_two(root, state) as server:
        await server.admin.set_labels("m", {"canary": 3})
        await begin_load(server, 3)
        begun = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=0.1))
        await until(lambda: server.state().default == 1)
        assert server.admin.operation(begun.id).state == "RUNNING"
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.admin.operation(begun.id).state == "DONE"
        assert server.state().default == 1
        assert server.state().labels == {"canary": 3}


@on_loop
async def test_an_action_that_looks_at_a_version_gives_way_to_a_rollback(
    root: Path, state: Path
) -> None:
    async with serving_two(root, state) as server:
        server.named_loader.load_gate.clear()
        server.named_loader.begun.clear()
        write_version(root / "m", 3)
        notified = asyncio.create_task(server.admin.act("reload", "m", ActionRequest(wait_s=20)))
        await server.named_loader.begun.wait()
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert (rolled.state, server.state().default) == ("DONE", 1)
        view = await notified
        assert view.state == "FAILED"
        assert "given up" in (view.error or "")


@on_loop
async def test_labels_that_wait_for_a_load_are_set_after_a_rollback(
    root: Path, state: Path
) -> None:
    async with serving_two(root, state) as server:
        server.named_loader.load_gate.clear()
        write_version(root / "m", 3)
        await server.watcher.look()
        asked = asyncio.create_task(server.admin.set_labels("m", {"canary": 1}))
        await asyncio.sleep(0.05)
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert (rolled.state, server.state().default) == ("DONE", 1)
        await asked
        assert server.state().labels == {"canary": 1}


@on_loop
async def test_the_only_version_is_unloaded_while_the_next_one_is_looked_at(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await begin_load(server, 2)
        await server.admin.act("unload", "m", ActionRequest(version=1, wait_s=0.05))
        await until(lambda: server.served() == ((), None))
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((2,), 2)


@on_loop
async def test_a_fault_of_ours_during_a_load_is_tried_again_later_only(
    root: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        loads = 0

        async def fail(*_: object) -> None:
            nonlocal loads
            loads += 1
            raise ZeroDivisionError

        monkeypatch.setattr(server.named_loader, "load", fail)
        write_version(root / "m", 2)
        await server.look()
        assert loads == 1
        assert server.served() == ((1,), 1)


@on_loop
async def test_files_of_a_refused_delta_are_looked_at_while_a_version_is(
    root: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_delta_faults, "_RECHECK_S", 0.2)
    monkeypatch.setattr(keeper_state, "_LOOK_S", 0.1)
    write_version(root / "m", 1)
    write_delta(root / "m" / "1", 1, extra={"broken": "cut off"})
    async with kept_server(root, state) as server:
        await begin_load(server, 2)
        assert snapshot(server) == "1"
        write_delta(root / "m" / "1", 1)
        await until(lambda: snapshot(server) == "1+1")


@on_loop
async def test_deltas_by_hand_wait_from_the_moment_that_serving_yaml_says_so(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await begin_load(server, 2)
        settings = root / "m" / "serving.yaml"
        settings.write_text("format: 1\ndeltas: {apply: manual}\n")
        write_delta(root / "m" / "1", 1)
        await server.watcher.look()
        for _ in range(20):
            await asyncio.sleep(0)
        assert snapshot(server) == "1"
        assert server.named_loader.applied == []


@on_loop
async def test_what_is_found_is_served_although_several_newer_ones_have_come(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.named_loader.is_turnstile = True
        await begin_load(server, 2)
        for version in (3, 4, 5):
            write_version(root / "m", version)
        await server.watcher.look()
        server.named_loader.begun.clear()
        server.named_loader.load_gate.set()
        await server.named_loader.begun.wait()
        assert server.served() == ((2,), 2)
        server.named_loader.load_gate.set()
        await server.settled()
        assert server.served() == ((5,), 5)
        assert server.named_loader.requests == [("m", 1), ("m", 2), ("m", 5)]


async def begin_deltas(server: KeptServer, version: int, delta: int) -> None:
    """Publish a delta, and wait until a loader is at it; that ends when the gate opens."""
    server.named_loader.gate.clear()
    server.named_loader.begun.clear()
    write_delta(server.root / "m" / str(version), delta)
    await server.watcher.look()
    await server.named_loader.begun.wait()


@on_loop
async def test_a_rollback_does_not_wait_for_deltas_that_a_loader_is_at(
    root: Path, state: Path
) -> None:
    async with serving_two(root, state) as server:
        await begin_deltas(server, 2, 1)
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert (rolled.state, server.state().default) == ("DONE", 1)
        assert not server.named_loader.gate.is_set()
        server.named_loader.gate.set()
        await server.admin.act("unpin", "m", ActionRequest(wait_s=20))
        await server.settled()
        assert snapshot(server) == "2+1"


@on_loop
async def test_an_unload_does_not_wait_for_them_either(root: Path, state: Path) -> None:
    async with serving_two(root, state) as server:
        await begin_deltas(server, 2, 1)
        unloaded = await server.admin.act("unload", "m", ActionRequest(version=1, wait_s=20))
        assert (unloaded.state, server.served()) == ("DONE", ((2,), 2))
        server.named_loader.gate.set()
        await server.settled()
        assert snapshot(server) == "2+1"


@on_loop
async def test_nor_does_a_rollback_where_a_version_is_looked_at_as_well(
    root: Path, state: Path
) -> None:
    async with serving_two(root, state) as server:
        await begin_load(server, 3)
        await begin_deltas(server, 2, 1)
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert (rolled.state, server.state().default) == ("DONE", 1)
        server.named_loader.load_gate.set()
        server.named_loader.gate.set()
        await server.admin.act("unpin", "m", ActionRequest(wait_s=20))
        await server.settled()
        assert server.state().default == 3


@on_loop
async def test_news_that_comes_while_deltas_are_applied_is_seen_after_them(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        await begin_deltas(server, 1, 1)
        write_version(root / "m", 2)
        write_delta(root / "m" / "1", 2)
        await server.watcher.look()
        server.named_loader.gate.set()
        await server.settled()
        assert server.served() == ((2,), 2)


@on_loop
async def test_all_that_waits_ends_with_the_server(root: Path, state: Path) -> None:
    begun = []
    async with serving_two(root, state) as server:
        server.switching.gate.clear()
        write_version(root / "m", 3)
        looking = asyncio.ensure_future(server.look())
        await until(lambda: ("m", 3) in server.named_loader.requests)
        actions: tuple[Action, ...] = ("unload", "rollback")
        for action in actions:
            begun.append(await server.admin.act(action, "m", ActionRequest(version=1, wait_s=0)))
        assert [one.state for one in begun] == ["RUNNING", "RUNNING"]
    looking.cancel()
    assert [server.admin.operation(one.id).state for one in begun] == ["CANCELLED"] * 2


@on_loop
async def test_a_rollback_does_not_wait_for_what_is_loaded_once_more(
    root: Path, state: Path
) -> None:
    async with serving_two(root, state) as server:
        server.named_loader.load_gate.clear()
        server.named_loader.begun.clear()
        server.switching.lacking.add("m")
        server.keeping.miss("m")
        await server.named_loader.begun.wait()
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert (rolled.state, server.state().default) == ("DONE", 1)
        assert not server.named_loader.load_gate.is_set()
        server.named_loader.load_gate.set()
        await server.settled()
