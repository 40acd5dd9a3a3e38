"""A launcher whose processes are actors, and what they say on their stage."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch_server.launcher import Programs, RestartPolicy, run_launcher
from anabranch_server.settings import read_settings, serve_config

__all__ = ["ACTOR", "ActorOnStage", "Stage", "staged_launcher"]

ACTOR = "anabranch_testing.processes.actor"
_ACTORS = Programs(ACTOR, ACTOR, ACTOR)
_HASTE = RestartPolicy(first_delay_s=0.01, max_delay_s=0.05, healthy_s=1e9, linger_s=0.3)
_PATIENCE_S = 60.0


class ActorOnStage:
    """The other end of an actor's lines."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(_PATIENCE_S)
        self._socket = sock
        self._lines = sock.makefile("r")
        self._heard: list[dict[str, Any]] = []
        self.opening: dict[str, Any] = self.hear()

    @property
    def pid(self) -> int:
        return int(self.opening["pid"])

    @property
    def name(self) -> str:
        return f"{self.opening['is']}.{self.opening['incarnation']}"

    def hear(self) -> dict[str, Any]:
        """The next line; empty when the actor has left."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:  # it was killed before it read what it was told
            line = ""
        return dict(json.loads(line)) if line else {}

    def hear_of(self, message: str | None, of: str) -> dict[str, Any]:
        """The next line about this message from that process; others may be asked for later."""
        wanted = {"message": message, "from": of}
        for line in self._heard:
            if line.items() >= wanted.items():
                self._heard.remove(line)
                return line
        while line := self.hear():
            if line.items() >= wanted.items():
                return line
            self._heard.append(line)
        raise AssertionError(f"{self.name} left without hearing of {message} from {of}")

    def tell(self, do: str, **what: object) -> None:
        self._socket.sendall(json.dumps({"do": do, **what}).encode() + b"\n")

    def ask(self, do: str, **what: object) -> dict[str, Any]:
        """The answer."""
        self.tell(do, **what)
        while "from" in (line := self.hear()):
            self._heard.append(line)
        return line

    def has_left(self) -> bool:
        """Wait for its end."""
        while self.hear():
            pass
        return True

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@dataclass
class Stage:
    """A running launcher and those of its actors that have come."""

    process: subprocess.Popen[bytes]
    listener: socket.socket
    log: Path
    scratch: Path
    actors: dict[str, ActorOnStage] = field(default_factory=dict)

    def actor(self, name: str) -> ActorOnStage:
        """An actor by name and incarnation, as `worker 0.1`; waits for it."""
        while name not in self.actors:
            sock, _ = self.listener.accept()
            came = ActorOnStage(sock)
            self.actors[came.name] = came
        return self.actors[name]

    def events(self) -> list[dict[str, Any]]:
        """What the launcher has logged so far, without a line that it is still writing."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.split("\n") if line.startswith("{")]

    def wait_for_event(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """All of that event, once there are so many."""
        end = time.monotonic() + 120
        while len(found := [line for line in self.events() if line["event"] == event]) < count:
            assert time.monotonic() < end, self.log.read_text()[-4000:]
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            time.sleep(0.02)
        return found

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def signal_until_it_ends(self) -> None:
        """Send SIGTERM again and again."""
        while self.process.poll() is None:
            self.signal()
            time.sleep(0.05)

    def exit_code(self) -> int:
        """Wait for the launcher's end."""
        return self.process.wait(60)


@contextmanager
def staged_launcher(
    scratch: Path,
    programs: Programs = _ACTORS,
    policy: RestartPolicy = _HASTE,
    *,
    workers: int = 2,
    drain_s: float = 1.0,
    prefix: tuple[str, ...] = (),
) -> Iterator[Stage]:
    """Run a launcher in a process of its own until the block ends."""
    (scratch / "state").mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = {
        "host": "127.0.0.1", "http_port": 0, "grpc_port": 0, "metrics_port": 0, "admin_port": 0,
        "admin_grpc_port": 0, "workers": workers, "drain_s": drain_s,
        **{f"{name}_dir": str(scratch / name) for name in ("cache", "state")},
        "run_dir": str(scratch / "run-{http_port}"), "ready_file": str(scratch / "ready.json"),
    }  # fmt: skip
    told = {
        "repository": str(scratch),
        "flags": flags,
        "programs": [programs.supervisor, programs.worker, programs.loader],
        "policy": dataclasses.asdict(policy),
    }
    log = scratch / "launcher.log"
    with ExitStack() as held:
        listener = held.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(scratch / "state" / "stage.sock"))
        listener.listen(64)
        listener.settimeout(_PATIENCE_S)
        environ = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
        output = held.enter_context(log.open("wb"))
        process = subprocess.Popen(
            [*prefix, sys.executable, "-P", "-m", __name__, json.dumps(told)],
            stdout=output,
            stderr=output,
            env=environ,
        )
        stage = Stage(process, listener, log, scratch)
        try:
            yield stage
        finally:
            for actor in stage.actors.values():
                actor.close()  # whoever is left leaves
            process.kill()
            process.wait()


def _main() -> int:
    told = json.loads(sys.argv[1])
    config = serve_config(read_settings(told["flags"], {}, None), told["repository"], cores=2)
    return run_launcher(config, Programs(*told["programs"]), RestartPolicy(**told["policy"]))


if __name__ == "__main__":
    sys.exit(_main())
