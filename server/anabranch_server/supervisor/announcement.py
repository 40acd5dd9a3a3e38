"""Saying that the server answers, where, and which processes it is made of: ready.json and a line.

The files are written when the server becomes ready, and again whenever one of their facts changes,
as when a worker was replaced, or somebody took them away; they are removed when it stops. One that
cannot be written is tried again with every call.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch_server.folders import own_folder
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.messages import Purpose
from anabranch_server.ready import Ready, read_ready, remove_ready, write_ready
from anabranch_wire.errors import AnabranchError

__all__ = ["Announcement"]

_log = logging.getLogger(__name__)


class Announcement:
    """Owns the ready files. Event loop.

    Args:
        boot: what the supervisor was told.
        pid: of the supervisor.
        serves: whether a doors' address is listened on: `admin_grpc`.
    """

    def __init__(self, boot: Boot, pid: int) -> None:
        self._boot = boot
        self._pid = pid
        config = boot.config
        self._files = [Path(boot.run_dir) / "ready.json"]
        if config.ready_file is not None:
            self._files.append(config.ready_file)
        earlier = read_ready(self._files[0]) if boot.incarnation > 1 else None
        is_ours = earlier is not None and earlier.pid == boot.launcher_pid
        self._earlier = earlier if is_ours else None
        self._said: Ready | None = None
        self._faults: dict[Path, str] = {}
        self._seconds = self._earlier.seconds if self._earlier is not None else None
        if self._earlier is None:
            self.withdraw()

    @property
    def was_made(self) -> bool:
        """Whether the server has been ready, under this supervisor or an earlier one."""
        return self._seconds is not None

    def make(
        self,
        workers: Sequence[int],
        loaders: Mapping[Purpose, int | None],
        models: Mapping[str, str],
    ) -> None:
        """Write the files, if anything of it is new.

        Args:
            workers: processes that answer requests.
            loaders: the processes that look at versions and at deltas, if there are any.
            models: model name -> snapshot that answers by default.
        """
        boot, is_first = self._boot, self._seconds is None
        if self._seconds is None:
            now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            self._seconds = round(now_s - boot.launcher_started, 3)
        ready = Ready(
            pid=boot.launcher_pid,
            supervisor=self._pid,
            loader=loaders.get("versions"),
            delta_loader=loaders.get("deltas"),
            **{name: str(address) for name, address in boot.addresses.items()},
            workers=tuple(workers),
            models=models,
            seconds=self._seconds,
        )
        for file in self._files:
            if ready != self._said or file in self._faults or not file.exists():
                self._write(file, ready)
        if is_first or self._said is None:
            _log.info(
                "ready: HTTP on %s, gRPC on %s",
                ready.http,
                ready.grpc,
                extra={
                    "event": "ready",
                    **{name: str(address) for name, address in boot.addresses.items()},
                    "models": models,
                    "seconds": ready.seconds,
                },
            )
        self._said = ready

    def _write(self, file: Path, ready: Ready) -> None:
        """Write a file; that it cannot be written is said once."""
        try:
            if file == self._files[0]:
                own_folder(file.parent)  # somebody may have taken that away as well
            write_ready(file, ready)
        except AnabranchError as error:
            if self._faults.get(file) != error.message:
                _log.error("%s", error.message, extra={"event": "ready_file"})
            self._faults[file] = error.message
        else:
            self._faults.pop(file, None)

    def withdraw(self) -> None:
        """Remove the files."""
        for file in self._files:
            remove_ready(file)
