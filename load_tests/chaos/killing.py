"""Kills processes of a server at random moments, while it is loaded and gets new versions."""

import json
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from anabranch_testing.server_processes import Role, ServerProcesses, owned_ports, wait_until
from anabranch_testing.servers import RunningServer
from chaos.holdings import Held, folder_bytes, held_by, leaks, overflowing
from chaos.judging import Complaint, Kill, Known, Victim, complaints
from chaos.numbers import number_of
from chaos.producers import Producer, Published
from chaos.subjects import Subject, requests_of
from openloop import Answer, Background, HttpTransport, Plan, Result

__all__ = ["HEADERS", "Outcome", "Rules", "kill_at_random"]

_BACK_S: Final = 60.0
_QUIET_S: Final = 20.0
"""How long what passed may take to be let go."""

_LOOK_S: Final = 0.1
HEADERS: Final = ("Anabranch-Model-Version", "Anabranch-Delta")
"""Whose values judges want of every answer."""


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
        marker: of the rows in the end; 0 where they do not change.
        published: by the trainer of a model with deltas; None: there was none.
        cache_bytes: of the cache folder, then and in the end.
        before: what the processes held once the version had changed a few times.
        after: what they held when all was quiet.
    """

    result: Result
    kills: tuple[Kill, ...]
    complaints: tuple[Complaint, ...]
    back_s: tuple[float, ...]
    versions: int
    marker: int
    published: Published | None
    cache_bytes: tuple[int, int]
    before: dict[Role, Held]
    after: dict[Role, Held]


def kill_at_random(
    server: RunningServer, subject: Subject, repository: Path, workers: int, rules: Rules
) -> Outcome:
    """Load, publish and kill; return when everything is back and a last version is served.

    Args:
        server: serves `repository`, which has version 1 of the model.
        subject: the model.
        repository: where versions are published.
        workers: that it was started with.
        rules: how.

    Raises:
        TimeoutError: something did not come back by itself.
    """
    answers = _Answers()
    plan = Plan(rate=rules.rate, seconds=36_000, connections=rules.connections, timeout_s=20.0)
    transport = HttpTransport(server.http, HEADERS, keep_bodies=True)
    draw = random.Random(rules.seed)
    story = _Story(server, subject, repository / subject.model, workers, rules)
    end = time.monotonic() + rules.seconds
    requests = requests_of(subject, server.http)
    with closing(story), Background(plan, transport, requests, answers.take) as load:
        story.begin()
        story.pass_time(2.5 * rules.publish_s)
        before, cache_before = story.held(), story.cache_bytes()
        while not story.kills or time.monotonic() < end:
            if time.monotonic() > end + _BACK_S:
                raise TimeoutError(f"{' or '.join(rules.victims)}: none was there to be killed")
            story.pass_time(draw.uniform(rules.pause_s / 2, rules.pause_s))
            story.kill(draw.choice(list(rules.victims)), draw)
        story.finish()
        result = load.finish()
    after, cache_after = story.quiet(before), story.cache_bytes()
    broken = chain(
        complaints(answers.all, story.kills, subject.markers, story.known, subject.deltas),
        leaks(before, after, subject.generations),
        overflowing(cache_before, cache_after),
    )
    return Outcome(
        result,
        tuple(story.kills),
        tuple(broken),
        tuple(story.back_s),
        story.version,
        story.marker(),
        story.published,
        (cache_before, cache_after),
        before,
        after,
    )


class _Answers:
    """All answers; bodies that are the same are kept once."""

    def __init__(self) -> None:
        self.all: list[Answer] = []
        self._bodies: dict[bytes, bytes] = {}

    def take(self, answer: Answer) -> None:
        """Keep one."""
        body = self._bodies.setdefault(answer.body, answer.body)
        self.all.append(msgspec.structs.replace(answer, body=body))


class _Story:
    """What happens to a server, one thing after the other."""

    def __init__(
        self, server: RunningServer, subject: Subject, folder: Path, workers: int, rules: Rules
    ) -> None:
        self.kills: list[Kill] = []
        self.known: list[Known] = []
        self.back_s: list[float] = []
        self.version = 1
        self._server = server
        self._subject = subject
        self._folder = folder
        self._workers = workers
        self._rules = rules
        self._processes = ServerProcesses(server.process.pid)
        self._port = int(server.http.rpartition(":")[2])
        self._published = time.monotonic()
        self._producer = Producer(folder, server.log.parent, rules.seed) if subject.deltas else None
        self.published: Published | None = None

    def begin(self) -> None:
        """Start the trainer of a model with deltas."""
        if self._producer is not None:
            self._producer.start()

    def close(self) -> None:
        """End that trainer, where it runs."""
        if self._producer is not None:
            self._producer.close()

    def pass_time(self, seconds: float) -> None:
        """Let it be for a while, but for new versions."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            due = self._published + self._rules.publish_s - time.monotonic()
            if due <= 0:
                self._publish()
            else:
                time.sleep(min(left, due, _LOOK_S))
                self._note_marker()

    def kill(self, victim: Victim, draw: random.Random) -> None:
        """Kill one, and wait until the server is whole again."""
        if victim == "publisher":
            self._kill_producer()
            return
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
        self._served()

    def finish(self) -> None:
        """A last version must be served by every worker."""
        last = self._publish_last()
        wait_until(
            lambda: self._served() == [last] * self._workers,
            _BACK_S,
            f"{last} served by every worker in the end",
        )
        wait_until(self._is_whole, _BACK_S, "whole in the end")
        self._note_marker()
        time.sleep(0.5)  # some answers must be no older than that

    def held(self) -> dict[Role, Held]:
        """What the processes hold now."""
        return held_by(self._processes, self._port)

    def cache_bytes(self) -> int:
        """How much the server keeps in its cache folder now."""
        return folder_bytes(self._server.log.parent / "cache")

    def quiet(self, before: Mapping[Role, Held]) -> dict[Role, Held]:
        """What the processes hold once they have let go of what passed, or have not in time."""
        with suppress(TimeoutError):
            wait_until(
                lambda: not list(leaks(before, self.held(), self._subject.generations)),
                _QUIET_S,
                "quiet",
            )
        return self.held()

    def marker(self) -> int:
        """The last marker of rows that was decided; 0 where they do not change."""
        for place in self._server.log.parent.glob("run*/marker"):
            with suppress(OSError, ValueError):
                return int(place.read_text())
        return 0

    def _note_marker(self) -> None:
        """A change is decided when the one before is what everybody reads."""
        if (marker := self.marker()) > 1:
            self.known.append(Known(time.monotonic_ns(), 0, marker - 1))

    def _kill_producer(self) -> None:
        """Kill the trainer, and have another one go on."""
        assert self._producer is not None, "only models with deltas have a trainer"
        at_ns = time.monotonic_ns()
        self.kills.append(Kill("publisher", self._producer.kill(), at_ns))
        self._producer.start()
        self.back_s.append((time.monotonic_ns() - at_ns) / 1e9)
        self._served()

    def _publish_last(self) -> tuple[int, int]:
        """Publish once more; returns the version and the delta that must be served then."""
        if self._producer is None:
            self._publish()
            return self.version, 0
        self.published = self._producer.finish()
        self.version = self.published.version
        return self.version, self.published.delta

    def _publish(self) -> None:
        if self._producer is not None:
            return  # it publishes all the time
        self.version += 1
        self._subject.publish(self._folder, self.version)
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

    def _served(self) -> list[tuple[int, int]]:
        """The version and the delta of the model in every worker that has one.

        Where it is the same one everywhere, nothing older may be seen from now on.
        """
        found = (worker["snapshots"].get(self._subject.model, "") for worker in self._told())
        served = [_version_and_delta(snapshot) for snapshot in found if snapshot]
        if len(served) == self._workers and len(set(served)) == 1:
            version, delta = served[0]
            number = number_of(version, delta) if self._subject.deltas else 0
            self.known.append(Known(time.monotonic_ns(), version, number))
        return served

    def _told(self) -> list[dict[str, Any]]:
        """What the admin port says of workers; nothing while it does not answer."""
        answer = _get(f"http://{self._server.admin}/admin/v1/workers")
        return [] if answer is None else list(json.loads(answer)["workers"])


def _version_and_delta(snapshot: str) -> tuple[int, int]:
    version, _, delta = snapshot.partition("+")
    return int(version), int(delta or 0)


def _get(url: str) -> bytes | None:
    """The body of a 200 answer; None for everything else."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
    except (OSError, urllib.error.URLError):
        return None
