"""From a config to the exit code of `anabranch serve`."""

import logging
import os
import resource
import signal

from anabranch_server.config import ServeConfig
from anabranch_server.launcher.estate import opened_estate
from anabranch_server.launcher.polling import Poller, caught_signals
from anabranch_server.launcher.restarts import RestartPolicy
from anabranch_server.launcher.starts import Programs, Starter
from anabranch_server.launcher.upkeep import Upkeep
from anabranch_server.logs import configure_logs

__all__ = ["run_launcher"]

_log = logging.getLogger(__name__)


def run_launcher(
    config: ServeConfig,
    programs: Programs = Programs(),  # noqa: B008
    policy: RestartPolicy = RestartPolicy(),  # noqa: B008
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Main thread.

    A first signal drains, a second one kills everything, with exit code 1. A terminal that is
    closed (SIGHUP) drains too, unless that is ignored, as under `nohup`. Signals are ignored once
    this returns: all has ended, and nothing changes the exit code any more.

    Args:
        config: all that the server is told.
        programs: what its processes run.
        policy: when a process is started again, or killed.

    Raises:
        AnabranchError: a port or a folder cannot be had; the message says the remedy.
    """
    configure_logs(config.logs, "launcher")
    for note in config.notes:
        _log.warning("%s", note, extra={"event": "setting_note"})
    _raise_open_files()
    stops = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        stops.append(signal.SIGHUP)
    with caught_signals(*stops, signal.SIGCHLD) as signals, opened_estate(config) as estate:
        poller = Poller()
        starter = Starter(config, estate, programs)
        upkeep = Upkeep(
            starter,
            estate,
            poller,
            workers=config.workers,
            drain_s=config.drain_s,
            policy=policy,
        )

        def on_signals() -> None:
            for number in signals.take():
                if number in stops:
                    _log.info("%s", number.name, extra={"event": "signal"})
                    upkeep.stop()

        poller.add_reader(signals.receiver.fileno(), on_signals)
        upkeep.start()
        while not upkeep.is_over:
            poller.wait(upkeep.next_due_s())
            upkeep.tick()
            if os.getpid() == 1:
                _reap_orphans(upkeep.pids)
    for number in stops:
        signal.signal(number, signal.SIG_IGN)
    _log.info("stopped", extra={"event": "stopped"})
    return upkeep.exit_code


def _raise_open_files() -> None:
    """Take as many descriptors as the machine gives; every process inherits that."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _reap_orphans(ours: set[int]) -> None:
    """Reap what the first process of a container is left with: children of children that ended.

    Those that are ours are reaped where their end is looked at; one that stands in the way here is
    looked at in the next round.
    """
    options = os.WEXITED | os.WNOHANG
    while ended := _ended_child(options | os.WNOWAIT):
        if ended in ours:
            return
        os.waitid(os.P_PID, ended, options)


def _ended_child(options: int) -> int | None:
    try:
        ended = os.waitid(os.P_ALL, 0, options)
    except ChildProcessError:
        return None
    return ended.si_pid if ended is not None else None
