"""What the kernel allows the processes of a server: shared memory, watching, priorities, ports."""

import os
import socket
import threading

from anabranch_server.asgi_server import BACKLOG
from anabranch_server.checks.check import Check
from anabranch_server.processes.priorities import become_idle

__all__ = [
    "check_autogroup",
    "check_backlog",
    "check_idle_priority",
    "check_port_migration",
    "check_port_sharing",
    "check_process_handles",
    "check_shared_memory",
]


def check_shared_memory() -> Check:
    """Anonymous shared memory, which carries counters and tables between processes."""
    try:
        descriptor = os.memfd_create("doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, 1 << 20)
        finally:
            os.close(descriptor)
    except OSError as error:
        remedy = "allow memfd_create in the sandbox or seccomp profile"
        return Check("shared memory", "failure", f"memfd: {error.strerror}", remedy)
    return Check("shared memory", "ok", "memfd with seals; /dev/shm is not used")


def check_port_sharing() -> Check:
    """Listening on one port from several sockets."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.bind(("127.0.0.1", 0))
            probe.listen(1)
    except OSError as error:
        remedy = "allow SO_REUSEPORT and listening on loopback in the sandbox"
        return Check("port sharing", "failure", str(error.strerror), remedy)
    return Check("port sharing", "ok", "SO_REUSEPORT")


def check_process_handles() -> Check:
    """Handles of processes, by which a death is noticed and never mistaken."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        remedy = "allow pidfd_open in the sandbox or seccomp profile"
        return Check("process handles", "failure", f"pidfd: {error.strerror}", remedy)
    return Check("process handles", "ok", "pidfd")


def check_idle_priority() -> Check:
    """Whether versions can be loaded only where nobody else wants the processor."""
    permitted: list[bool] = []
    looking = threading.Thread(target=lambda: permitted.append(become_idle()))
    looking.start()
    looking.join()
    if permitted != [True]:
        remedy = (
            "allow sched_setscheduler in the sandbox or seccomp profile: "
            "without it loading takes processor time from requests"
        )
        return Check("idle priority", "warning", "SCHED_IDLE is not permitted", remedy)
    return Check("idle priority", "ok", "SCHED_IDLE")


def check_port_migration(setting: str) -> Check:
    """Whether connections that wait at a worker go over to another when it dies.

    Args:
        setting: content of `/proc/sys/net/ipv4/tcp_migrate_req`; empty where there is none.
    """
    if setting.strip() == "1":
        return Check("port migration", "ok", "net.ipv4.tcp_migrate_req = 1")
    found = f"net.ipv4.tcp_migrate_req = {setting.strip()}" if setting else "not in this kernel"
    remedy = (
        "sysctl -w net.ipv4.tcp_migrate_req=1 (Linux 5.14): without it connections that a worker "
        "has not taken yet are reset when it dies"
    )
    return Check("port migration", "warning", found, remedy)


def check_backlog(setting: str) -> Check:
    """How many connections may wait until they are taken.

    Args:
        setting: content of `/proc/sys/net/core/somaxconn`; empty where it cannot be read.
    """
    if not setting.strip().isdigit():
        return Check("backlog", "ok", "not told by the system")
    found = f"net.core.somaxconn = {setting.strip()}"
    if int(setting) < BACKLOG:
        remedy = f"sysctl -w net.core.somaxconn={BACKLOG}: more at once must retry"
        return Check("backlog", "warning", found, remedy)
    return Check("backlog", "ok", found)


def check_autogroup(setting: str) -> Check:
    """Whether priorities count between all processes or inside a session only.

    All processes of a server are in one session, so that either is well.

    Args:
        setting: content of `/proc/sys/kernel/sched_autogroup_enabled`; empty where there is none.
    """
    grouped = setting.strip() == "1"
    found = "on: priorities count inside the server's session" if grouped else "off"
    return Check("autogroup", "ok", found)
