"""`anabranch load|unload|reload|rollback|unpin|status` against an admin port."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch_server.administration import ActionRequest
from anabranch_server.app import create_app
from anabranch_server.describe import FailureView, VersionView
from anabranch_testing.admin_ports import AdminPorts, admin_ports
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.doors import door_context
from anabranch_testing.http_doors import http_door
from anabranch_wire.errors import Conflict, InvalidInput

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


@pytest.fixture
def administration() -> MemoryAdministration:
    return MemoryAdministration({"ctr": model_view("ctr", 42)})


@pytest.fixture
def ports(administration: MemoryAdministration) -> Iterator[AdminPorts]:
    with admin_ports(administration) as ports:
        yield ports


def start(ports: AdminPorts, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "anabranch_server", *words],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**SURROUNDINGS, "COLUMNS": "100", "ANABRANCH_ADMIN_URL": ports.url},
    )


def run(ports: AdminPorts, *words: str, code: int = 0) -> tuple[str, str]:
    """Run a command; return what it printed and what it said."""
    with start(ports, *words) as process:
        printed, said = process.communicate(timeout=60)
    assert process.returncode == code, f"{printed}\n{said}"
    return printed, said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("load ctr --version 43", ActionRequest(43)),
        ("load", ActionRequest()),
        ("unload ctr", ActionRequest()),
        ("reload ctr --force --unpin", ActionRequest(force=True, unpin=True)),
        ("rollback ctr", ActionRequest()),
        ("rollback ctr --version 42", ActionRequest(42)),
        ("rollback ctr --version 42+16", ActionRequest(42, 16)),
        ("rollback ctr --version 42+0", ActionRequest(42, 0)),
        ("unpin ctr", ActionRequest()),
    ],
)
def test_an_action_is_carried_out(
    administration: MemoryAdministration, ports: AdminPorts, words: str, told: ActionRequest
) -> None:
    action = words.split()[0]

    printed, said = run(ports, *words.split())

    assert administration.asked == [(action, "ctr", replace(told, wait_s=0.5))]
    assert printed.startswith(f"{action} of ctr: done in ")
    assert said == ""


@pytest.mark.parametrize("words", [["reload"], ["reload", "--json"]])
def test_a_reload_of_a_held_model_says_that_it_is_held(
    administration: MemoryAdministration, ports: AdminPorts, words: list[str]
) -> None:
    administration.known["ctr"] = model_view("ctr", 42, pinned="42+5")

    said = run(ports, *words)[1]

    assert said.startswith("anabranch: ctr is held at 42+5: ")
    assert "anabranch unpin" in said


def test_json_is_the_operation(ports: AdminPorts) -> None:
    operation = json.loads(run(ports, "reload", "--json")[0])

    assert (operation["id"], operation["state"], operation["error"]) == ("op-000001", "DONE", None)


def test_a_failure_is_code_1_with_the_reason(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    administration.broken = "version 43: checksum of model.onnx"

    printed, said = run(ports, "load", "ctr", code=1)
    as_json, said_again = run(ports, "load", "ctr", "--json", code=1)

    assert printed == ""
    assert said == said_again == "anabranch: load of ctr: version 43: checksum of model.onnx\n"
    assert json.loads(as_json)["state"] == "FAILED"


def test_what_cannot_begin_says_why(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    assert "model 'nope' is not known" in run(ports, "load", "nope", code=1)[1]
    administration.refused = Conflict("op-000007 is at work")
    assert "op-000007 is at work" in run(ports, "load", "ctr", code=1)[1]
    administration.refused = InvalidInput("no delta 16 of version 42 is retained")
    assert "no delta 16" in run(ports, "rollback", "ctr", "--version", "42+16", code=2)[1]


def test_wrong_usage_is_code_2(administration: MemoryAdministration, ports: AdminPorts) -> None:
    for words in (
        "rollback ctr --version forty",
        "rollback ctr --version 42+",
        "load ctr --version 0",
        "load ctr --version 42+1",
        "load ctr --wait-s -1",
        "unload --admin ftp://x",
    ):
        assert run(ports, *words.split(), code=2)[0] == ""
    administration.known["home"] = model_view("home", 1)
    assert "name the model; the server has ctr, home" in run(ports, "unload", code=2)[1]
    assert not administration.asked


def close_gate(administration: MemoryAdministration, ports: AdminPorts) -> asyncio.Event:
    async def close() -> asyncio.Event:
        administration.gate = asyncio.Event()
        return administration.gate

    return ports.on_loop(close)


def test_long_work_is_followed_in_lines(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    gate = close_gate(administration, ports)
    with start(ports, "reload", "ctr") as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        ports.loop.call_soon_threadsafe(gate.set)
        printed, rest = process.communicate(timeout=60)

    assert first == "anabranch: reload of ctr: building\n"
    assert rest == ""
    assert process.returncode == 0
    assert printed.startswith("reload of ctr: done in ")


def test_long_work_has_a_bar_on_a_terminal(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    gate = close_gate(administration, ports)
    terminal, end = os.openpty()
    with start(ports, "reload", "ctr", stderr=end) as process:
        os.close(end)
        shown = b""
        while b"building" not in shown:
            shown += os.read(terminal, 4096)
        ports.loop.call_soon_threadsafe(gate.set)
        assert process.stdout is not None
        assert process.stdout.read().startswith("reload of ctr: done in ")
        assert process.wait(60) == 0
    os.close(terminal)
    assert b"reload of ctr" in shown


def test_work_that_goes_on_is_no_success(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    gate = close_gate(administration, ports)
    administration.known["home"] = model_view("home", 1)

    late = run(ports, "load", "ctr", "--wait-s", "0.1", code=1)[1]
    begun = run(ports, "load", "home", "--wait-s", "0")[0]

    assert "load of ctr is still at work as op-000001" in late
    assert begun == "load of home: begun as op-000002\n"
    ports.loop.call_soon_threadsafe(gate.set)


def test_an_operation_that_is_forgotten_is_told(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    close_gate(administration, ports)

    async def start_again() -> None:
        administration.made.clear()
        for task in administration.tasks:
            task.cancel()

    with start(ports, "load", "ctr") as process:
        assert process.stderr is not None
        process.stderr.readline()
        ports.on_loop(start_again)
        said = process.stderr.read()

    assert process.returncode == 1
    assert "op-000001 is not known any more" in said


def test_an_operation_of_the_same_name_is_not_taken_for_the_one_that_is_followed(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    close_gate(administration, ports)

    async def start_anew() -> None:
        begun = administration.made["op-000001"]
        administration.made["op-000001"] = replace(
            begun, state="DONE", started=begun.started + 1, ended=begun.started + 2
        )

    with start(ports, "load", "ctr") as process:
        assert process.stderr is not None
        process.stderr.readline()
        ports.on_loop(start_anew)
        said = process.stderr.read()

    assert process.returncode == 1
    assert "op-000001 is not known any more" in said


def test_the_data_port_is_told_apart(ports: AdminPorts) -> None:
    with door_context({}) as context, http_door(context, app=create_app(context)) as door:
        url = f"http://127.0.0.1:{door.port}"
        for words in ("load ctr", "load", "status"):
            said = run(ports, *words.split(), "--admin", url, code=1)[1]
            assert f"{url} is not the admin port" in said


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("no room for 7 rows", "version 42, delta 25: no room for 7 rows"),
        ("delta 25: it is missing", "version 42: delta 25: it is missing"),
    ],
)
def test_status_shows_which_delta_is_in_the_way(
    administration: MemoryAdministration, ports: AdminPorts, error: str, shown: str
) -> None:
    failure = FailureView(0.0, 42, 25, "store_full", error)
    administration.known = {"ctr": replace(model_view("ctr", 42), last_error=failure)}
    assert shown in " ".join(run(ports, "status")[0].split())


def test_status_shows_what_is_served_kept_held_and_how_old(
    administration: MemoryAdministration, ports: AdminPorts
) -> None:
    now = time.time()
    versions = [
        VersionView(43, "LOADING", 0),
        VersionView(42, "READY", 17, event_time=now - 300),
        VersionView(41, "UNAVAILABLE", 0, kept=True),
    ]
    model = model_view("ctr", pinned="42+17", labels={"stable": 42}, state="READY")
    administration.known = {
        "ctr": replace(model, versions=versions),
        "home": model_view("home"),
    }
    administration.fail("home", "no file")

    lines = [" ".join(line.split()) for line in run(ports, "status")[0].splitlines()]

    assert lines == [
        "model state serves kept held at labels data last error",
        "ctr READY 43 (loading), 42+17 41 42+17 stable=42 5 min old",
        "home UNAVAILABLE version 41: no file",
    ]
    assert json.loads(run(ports, "status", "ctr", "--json")[0])["pinned"] == "42+17"
    assert "held at" not in run(ports, "status", "home")[0]
    assert "not known" in run(ports, "status", "nope", code=1)[1]
    administration.known.clear()
    assert run(ports, "status")[0] == "the repository has no model\n"
