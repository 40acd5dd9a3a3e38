"""Several worker processes that share one HTTP port, each nothing but a port.

Run as a program it is one such worker: `python http_workers.py DOCUMENT`, a JSON object of numbers
of descriptors and the like. A request is answered with the number of the worker and how many
connections it has; `GET /queue/N` sets the length of the queue that it reports.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from starlette.types import Receive, Scope, Send

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.config import HttpConfig
from anabranch_server.doors import DoorContext
from anabranch_server.http import HttpPort, Siblings
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.limits import Limits
from anabranch_server.ports import Claim, claim, listener_beside
from anabranch_server.processes.board import MODEL_SLOTS, BalanceLayout
from anabranch_server.processes.boot import ListenAddress
from anabranch_testing.doors import Observed

__all__ = ["HttpWorkers", "http_workers"]


@dataclass
class HttpWorkers:
    """The port, what the workers share, and the workers.

    Attributes:
        port: on 127.0.0.1.
        layout: of the balance page.
        balance: the balance page.
        processes: by number of the worker.
    """

    claimed: Claim
    layout: BalanceLayout
    balance: SharedWords
    inboxes: list[tuple[socket.socket, socket.socket]]
    max_age_s: float
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Port of 127.0.0.1 that they share."""
        return self.claimed.port

    def start(self, index: int) -> None:
        """Start a worker, without waiting."""
        outboxes = {n: put.fileno() for n, (_, put) in enumerate(self.inboxes) if n != index}
        inbox = self.inboxes[index][0].fileno()
        document = {
            "index": index,
            "workers": self.layout.workers,
            "port": self.port,
            "balance": self.balance.fd,
            "inbox": inbox,
            "outboxes": outboxes,
            "max_age_s": self.max_age_s,
        }
        self.processes[index] = subprocess.Popen(
            [sys.executable, __file__, json.dumps(document)],
            pass_fds=[self.balance.fd, inbox, *outboxes.values()],
            stdin=subprocess.PIPE,  # closes when the test dies, and its workers then end
            stdout=subprocess.PIPE,
        )

    def wait(self, index: int) -> None:
        """Return when a worker takes connections."""
        output = self.processes[index].stdout
        assert output is not None
        assert output.readline() == b"open\n"

    def kill(self, index: int) -> None:
        """Kill a worker, and return when it is dead; nobody else is told."""
        process = self.processes.pop(index)
        process.kill()
        process.wait()
        for end in (process.stdin, process.stdout):
            assert end is not None
            end.close()

    def stop(self, index: int) -> None:
        """Tell a worker to close its port and leave; does not wait."""
        self.processes[index].send_signal(signal.SIGTERM)


@contextmanager
def http_workers(count: int, max_age_s: float = 0.0) -> Iterator[HttpWorkers]:
    """Run `count` workers until the block ends."""
    layout = BalanceLayout(count)
    workers = HttpWorkers(
        claim("127.0.0.1", 0, "HTTP"),
        layout,
        SharedWords.create(layout.words),
        [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)],
        max_age_s,
    )
    try:
        for index in range(count):
            workers.start(index)
        for index in range(count):
            workers.wait(index)
        yield workers
    finally:
        for index in list(workers.processes):
            workers.kill(index)
        workers.claimed.held.close()
        for pair in workers.inboxes:
            for end in pair:
                end.close()


async def _serve(told: dict[str, object]) -> None:
    def number(name: str) -> int:
        value = told[name]
        assert isinstance(value, int)
        return value

    outboxes = told["outboxes"]
    assert isinstance(outboxes, dict)
    index = number("index")
    siblings = Siblings(
        index,
        BalanceLayout(number("workers")),
        SharedWords.open(number("balance"), writable=True),
        socket.socket(fileno=number("inbox")),
        {int(name): socket.socket(fileno=fd) for name, fd in outboxes.items()},
    )
    catalog = Catalog(SharedWords.create(MODEL_SLOTS))
    lifecycle = Lifecycle(catalog, allow_empty=True)
    lifecycle.advance(Phase.SERVING)
    context = DoorContext(catalog, Limits(), lifecycle, Observed(), "0")
    loads = [0]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.startswith("/queue/"):
            loads[0] = int(path.removeprefix("/queue/"))
        body = b"%d %d" % (index, port.connections)
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    listener = listener_beside(ListenAddress("127.0.0.1", number("port")))
    age_s = told["max_age_s"]
    assert isinstance(age_s, float)
    port = HttpPort(context, app, listener, siblings, HttpConfig(age_s), lambda: loads[0])
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(0, os._exit, 1)
    await port.start()
    os.write(1, b"open\n")
    await ended.wait()
    await port.stop(1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    uvloop.run(_serve(json.loads(sys.argv[1])))
