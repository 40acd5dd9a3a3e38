"""Kills processes of a server at random moments, while it is loaded and gets new versions."""

import json
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anabranch_testing.server_processes import ServerProcesses, owned_ports, wait_until
from anabranch_testing.servers import RunningServer
from anabranch_testing.telling_models import INPUT_WIDTH, publish_telling
from chaos.judging import Complaint, Kill, Victim, complaints
from openloop import Answer, Background, HttpTransport, Plan, Result, post

__all__ = ["MODEL", "Outcome", "Rules", "kill_at_random", "request_of"]

MODEL: Final = "telling"
_BACK_S: Final = 60.0
_HEADERS: Final = ("Anabranch-Model-Version",)


@dataclass(frozen=True, slots=True)
class Rules:
    """How it is done.

    Attributes:
        victims: what is killed, in turn of a draw.
        seconds: how long; at least one kill is made.
        rate: requests a second.
        connections: kept connections.
        pause_s: between two kills, drawn from half to all of it; the server is back before.
        publish_s: between two new versions.
        seed: of moments and victims.
    """

    victims: Sequence[Victim]
    seconds: float
    rate: float
    connections: int = 24
    pause_s: float = 3.0
    publish_s: float = 2.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen.

    Attributes:
        result: of the load.
        kills: what was killed.
        complaints: rules that were broken.
        back_s: how long the server took to be whole again, after each kill.
        versions: version that was served in the end.
    """

    result: Result
    kills: tuple[Kill, ...]
    complaints: tuple[Complaint, ...]
    back_s: tuple[float, ...]
    versions: int


def request_of(address: str) -> bytes:
    """Return a whole request for two rows."""
    tensor = {
        "name": "x", "shape": [2, INPUT_WIDTH], "datatype": "FP32", "data": [0.5] * 2 * INPUT_WIDTH,
    }  # fmt: skip
    body = json.dumps({"inputs": [tensor]}).encode()
    return post(address, f"/v2/models/{MODEL}/infer", body, {"Content-Type": "application/json"})


def kill_at_random(server: RunningServer, repository: Path, workers: int, rules: Rules) -> Outcome:
    """Load, publish and kill; return when everything is back and a last version is served.

    Args:
        server: serves `repository`, which has version 1 of the model.
        repository: where versions are published.
        workers: that it was started with.
        rules: how.

    Raises:
        TimeoutError: something did not come back by itself.
    """
    answers: list[Answer] = []
    plan = Plan(rate=rules.rate, seconds=36_000, connections=rules.connections, timeout_s=20.0)
    transport = HttpTransport(server.http, _HEADERS, keep_bodies=True)
    draw = random.Random(rules.seed)
    story = _Story(server, repository / MODEL, workers, rules)
    end = time.monotonic() + rules.seconds
    with Background(plan, transport, [request_of(server.http)], answers.append) as load:
        while not story.kills or time.monotonic() < end:
            story.pass_time(draw.uniform(rules.pause_s / 2, rules.pause_s))
            story.kill(draw.choice(list(rules.victims)), draw)
        story.finish()
        result = load.finish()
    return Outcome(
        result,
        tuple(story.kills),
        tuple(complaints(answers, story.kills)),
        tuple(story.back_s),
        story.version,
    )


class _Story:
    """What happens to a server, one thing after the other."""

    def __init__(self, server: RunningServer, folder: Path, workers: int, rules: Rules) -> None:
        self.kills: list[Kill] = []
        self.back_s: list[float] = []
        self.version = 1
        self._server = server
        self._folder = folder
        self._workers = workers
        self._rules = rules
        self._processes = ServerProcesses(server.process.pid)
        self._port = int(server.http.rpartition(":")[2])
        self._published = time.monotonic()

    def pass_time(self, seconds: float) -> None:
        """Let it be for a while, but for new versions."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            due = self._published + self._rules.publish_s - time.monotonic()
            if due <= 0:
                self._publish()
            else:
                time.sleep(min(left, due))

    def kill(self, victim: Victim, draw: random.Random) -> None:
        """Kill one, and wait until the server is whole again."""
        if victim == "loader":
            self._publish()
            with suppress(TimeoutError):  # it may have been too quick to be seen
                wait_until(lambda: bool(self._processes.of("loader")), 5.0, "a loader")
        pids = self._processes.of(victim)
        if not pids:
            return
        pid = draw.choice(pids)
        others = [worker for worker in self._processes.of("worker") if worker != pid]
        spared = frozenset(port for worker in others for port in owned_ports(worker, self._port))
        kill = Kill(victim, pid, time.monotonic_ns(), spared)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills.append(kill)
        self.back_s.append(wait_until(self._is_whole, _BACK_S, f"whole after the {victim} died"))

    def finish(self) -> None:
        """A last version must be served by every worker."""
        self._publish()
        wait_until(
            lambda: self._served() == [str(self.version)] * self._workers,
            _BACK_S,
            f"version {self.version} served by every worker in the end",
        )
        wait_until(self._is_whole, _BACK_S, "whole in the end")

    def _publish(self) -> None:
        self.version += 1
        publish_telling(self._folder, self.version)
        self._published = time.monotonic()

    def _is_whole(self) -> bool:
        roles = list(self._processes.all().values())
        return (
            roles.count("worker") == self._workers
            and roles.count("supervisor") == 1
            and self._is_ready()
        )

    def _is_ready(self) -> bool:
        """Ready, and every worker is said to answer."""
        if _get(f"http://{self._server.metrics}/health/ready") is None:
            return False
        return [worker["state"] for worker in self._told()] == ["serving"] * self._workers

    def _served(self) -> list[str]:
        """The snapshot of the model in every worker that has one, without its delta."""
        found = (worker["snapshots"].get(MODEL, "") for worker in self._told())
        return [snapshot.partition("+")[0] for snapshot in found]

    def _told(self) -> list[dict[str, Any]]:
        """What the admin port says of workers; nothing while it does not answer."""
        answer = _get(f"http://{self._server.admin}/admin/v1/workers")
        return [] if answer is None else list(json.loads(answer)["workers"])


def _get(url: str) -> bytes | None:
    """The body of a 200 answer; None for everything else."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
    except (OSError, urllib.error.URLError):
        return None
