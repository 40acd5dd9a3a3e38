"""The serving process: from a config to an exit code."""

import asyncio
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from importlib.metadata import version

import uvloop

from anabranch_runtime.backends.ort_library import import_onnxruntime
from anabranch_server.config import ServeConfig
from anabranch_server.cores import usable_cores
from anabranch_server.folders import own_folder, run_dir_at
from anabranch_server.loading import Loader
from anabranch_server.logs import configure_logs
from anabranch_server.ports import claim_all
from anabranch_server.supervisor.single import Supervisor
from anabranch_server.worker import Worker

__all__ = ["run_server"]

_log = logging.getLogger(__name__)

_WORKER = 0


def run_server(config: ServeConfig) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Main thread.

    A first signal drains, a second one ends the process at once with exit code 1.

    Raises:
        AnabranchError: the server could not start; the message says the remedy.
    """
    configure_logs(config.logs, _WORKER)
    for note in config.notes:
        _log.warning("%s", note, extra={"event": "setting_note"})
    import_onnxruntime()  # refuses a missing or doubled library before a port is taken
    _raise_open_files()
    if config.runtime.gil_switch_interval_s is not None:
        sys.setswitchinterval(config.runtime.gil_switch_interval_s)
    if not uvloop.run(_serve(config)):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)  # threads inside native code must not meet a closing interpreter
    return 0


async def _serve(config: ServeConfig) -> bool:
    claims = claim_all(config.addresses)
    run_dir = run_dir_at(config.folders.run, claims.http.port)
    try:
        for folder in (config.folders.cache, config.folders.state, run_dir):
            own_folder(folder)
        worker = Worker(
            _WORKER,
            config.limits,
            access_log=config.logs.access,
            allow_empty=config.allow_empty,
            version=version("anabranch"),
        )
        loader = Loader(config.repository, worker, usable_cores() // config.workers or 1)
        supervisor = Supervisor(config, claims, worker, loader, run_dir)
        _catch_signals(supervisor)
        return await supervisor.run()
    finally:
        claims.close()
        if run_dir != config.folders.run:  # named after the port: nobody else's
            with suppress(OSError):
                run_dir.rmdir()


def _catch_signals(supervisor: Supervisor) -> None:
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if caught:
            os._exit(1)
        caught.append(number)
        _log.info("%s", number.name, extra={"event": "signal"})
        supervisor.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


def _raise_open_files() -> None:
    """Take as many descriptors as the machine gives."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
