import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from anabranch_server.checks import Check
from anabranch_server.checks.machine import (
    check_cores,
    check_instructions,
    check_kernel,
    check_memory,
    check_open_files,
)
from anabranch_server.checks.memory import check_huge_pages
from anabranch_server.checks.processes import (
    check_autogroup,
    check_backlog,
    check_idle_priority,
    check_port_migration,
    check_port_sharing,
    check_process_handles,
    check_shared_memory,
)
from anabranch_server.checks.software import (
    check_folder,
    check_native_core,
    check_onnxruntime,
    check_python,
)
from anabranch_server.config import Folders
from anabranch_server.doctor import Report, examine
from anabranch_wire.errors import Unavailable

INFINITE = resource.RLIM_INFINITY


def test_this_machine_can_run_a_server(tmp_path: Path) -> None:
    report = examine(
        Folders(tmp_path / "cache", tmp_path / "state", tmp_path / "run" / "{http_port}")
    )

    assert report.ok, report
    names = [check.name for check in report.checks]
    assert len(set(names)) == len(names)
    assert {"python", "kernel", "onnxruntime", "cpu cores", "open files"} <= set(names)


def test_a_kernel_that_makes_no_huge_pages_is_a_warning() -> None:
    def refuse() -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    check = check_huge_pages(refuse)

    assert (check.status, "Invalid argument" in check.found) == ("warning", True)
    assert check_huge_pages(lambda: None).status == "ok"


def test_whatever_is_wrong_comes_with_a_remedy(tmp_path: Path) -> None:
    report = examine(
        Folders(tmp_path / "cache", tmp_path / "state", tmp_path / "run" / "{http_port}")
    )
    for check in report.checks:
        assert (check.status == "ok") == (check.remedy == ""), check


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (check_python((3, 10, 9)), "failure"),
        (check_python((3, 11, 0)), "ok"),
        (check_kernel("Linux", "6.8.0-31-generic"), "ok"),
        (check_kernel("Linux", "5.3"), "ok"),
        (check_kernel("Linux", "4.19.0"), "failure"),
        (check_kernel("Darwin", "23.1.0"), "failure"),
        (check_instructions("flags\t\t: fpu avx2 fma", "x86_64"), "ok"),
        (check_instructions("flags\t\t: fpu sse4_2", "x86_64"), "warning"),
        (check_instructions("", "aarch64"), "ok"),
        (check_cores(8, 8), "ok"),
        (check_cores(2, 8), "warning"),
        (check_open_files(1024, INFINITE), "ok"),
        (check_open_files(1024, 65536), "ok"),
        (check_open_files(1024, 4096), "warning"),
        (check_open_files(256, 512), "failure"),
        (check_native_core(), "ok"),
        (check_shared_memory(), "ok"),
        (check_port_sharing(), "ok"),
        (check_process_handles(), "ok"),
        (check_idle_priority(), "ok"),
        (check_memory(None), "ok"),
        (check_memory(2 << 30), "ok"),
        (check_memory(1 << 29), "warning"),
        (check_port_migration("1\n"), "ok"),
        (check_port_migration("0\n"), "warning"),
        (check_port_migration(""), "warning"),
        (check_backlog("4096\n"), "ok"),
        (check_backlog("128\n"), "warning"),
        (check_backlog(""), "ok"),
        (check_autogroup("1\n"), "ok"),
        (check_autogroup(""), "ok"),
    ],
)
def test_single_checks(check: Check, status: str) -> None:
    assert check.status == status
    assert check.found


def test_a_foreign_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    check = check_folder("cache folder", tmp_path / "file")

    assert check.status == "failure"
    assert "--cache-dir" in check.remedy


@pytest.mark.parametrize(
    "message",
    [
        "both onnxruntime and onnxruntime-gpu are installed: uninstall both",
        "ONNX Runtime is not installed: install anabranch with the extra [cpu] or [gpu]",
    ],
)
def test_zero_or_two_runtimes_fail(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def refuse() -> None:
        raise Unavailable(message)

    monkeypatch.setattr("anabranch_server.checks.software.import_onnxruntime", refuse)

    check = check_onnxruntime()

    assert (check.status, f"{check.found}: {check.remedy}") == ("failure", message)


def refused(*_: object) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("call", "look", "status"),
    [
        ("os.memfd_create", check_shared_memory, "failure"),
        ("os.pidfd_open", check_process_handles, "failure"),
        ("os.sched_setscheduler", check_idle_priority, "warning"),
    ],
)
def test_what_a_sandbox_forbids_is_named(
    monkeypatch: pytest.MonkeyPatch, call: str, look: Callable[[], Check], status: str
) -> None:
    monkeypatch.setattr(call, refused)

    check = look()

    assert check.status == status
    assert "seccomp" in check.remedy


def test_looking_leaves_this_thread_as_it_was() -> None:
    before = os.sched_getscheduler(0)
    check_idle_priority()
    assert os.sched_getscheduler(0) == before


def test_one_failure_makes_the_report_bad() -> None:
    fine, bad = Check("a", "warning", "x", "y"), Check("b", "failure", "x", "y")
    assert Report((fine,)).ok
    assert not Report((fine, bad)).ok
