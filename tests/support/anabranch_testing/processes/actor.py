"""Plays any process of a server: says on a stage what happens to it, does what it is told there.

The stage is the unix socket `stage.sock` in the state folder, whose lines in both directions are
JSON objects. An actor opens with `{"is": "worker 0", "incarnation": 1, ...}`, then tells of every
message as `{"from": "launcher", "message": "Attached", "fds": 2}`. It passes on what it gets: a
worker says `Hello` to each supervisor, and a supervisor says from whom it got one. It understands

    {"do": "exit", "code": 3}            at once
    {"do": "load"}                       a supervisor asks for a loader
    {"do": "serve"}                      a supervisor publishes an epoch
    {"do": "listen"}                     a supervisor listens on its metrics socket
    {"do": "stay"}                       a drain no longer ends it
    {"do": "babble"}                     it sends the launcher what is no message
    {"do": "balance", "word": 3}         it tells of a word of the balance page, after adding 1
    {"do": "put", "into": 1}             a worker puts a pipe's end into the inbox of a sibling
    {"do": "orphan"}                     its child's child ends without a parent
    {"do": "take"}                       a worker takes what is in its inbox
"""

import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.launcher.places import Place
from anabranch_server.processes.boot import Boot, read_boot
from anabranch_server.processes.channel import Channel, ChannelClosed, EventLoop
from anabranch_server.processes.loader_messages import FromLoader
from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Attached,
    Drain,
    FromLauncher,
    FromSupervisor,
    FromWorker,
    Hello,
    LoaderAttached,
    NewSupervisor,
    Purpose,
    StartLoader,
)
from anabranch_server.processes.packets import sealed_memory

AnyMessage = FromLauncher | FromSupervisor | FromWorker | FromLoader


class Loop(EventLoop):
    """Readers only."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> None:
        self.selector.register(fd, selectors.EVENT_READ, callback)

    def remove_reader(self, fd: int, /) -> None:
        self.selector.unregister(fd)

    def add_writer(self, fd: int, callback: Callable[[], None], /) -> None:
        raise NotImplementedError

    def remove_writer(self, fd: int, /) -> None:
        pass


class Actor:
    """One process."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.loop = Loop()
        self.channels: dict[str, Channel[Any]] = {}
        self.stays = False
        self.stage = socket.socket(socket.AF_UNIX)
        self.stage.connect(str(Path(boot.config.folders.state) / "stage.sock"))
        self.lines = self.stage.makefile("r")
        name = str(Place(boot.role, boot.index))
        self.say(
            {
                "is": name,
                "incarnation": boot.incarnation,
                "pid": os.getpid(),
                "launcher": boot.launcher_pid,
                "names": sorted(boot.descriptors),
                "addresses": {name: [a.host, a.port] for name, a in boot.addresses.items()},
                "run_dir": boot.run_dir,
            }
        )
        for name in ("launcher", "supervisor"):
            if name in boot.descriptors:
                self.talk(name, socket.socket(fileno=boot.descriptors[name]))
        self.loop.add_reader(self.stage.fileno(), self.on_stage)

    def say(self, line: dict[str, object]) -> None:
        self.stage.sendall(json.dumps(line).encode() + b"\n")

    def talk(self, name: str, sock: socket.socket) -> None:
        if name in self.channels:
            self.channels[name].close()
        channel = self.channels[name] = Channel[Any](sock, AnyMessage)
        channel.attach(
            self.loop,
            lambda message, fds: self.on_message(name, message, fds),
            lambda: self.say({"from": name, "message": None}),
        )
        if name == "supervisor" and self.boot.role == "worker":
            fd = sealed_memory("counters", b"counters")
            hello = Hello(self.boot.index, self.boot.incarnation, os.getpid(), False, {})
            with suppress(ChannelClosed):  # another supervisor will come
                channel.send(hello, [fd])
            os.close(fd)

    def on_message(self, name: str, message: Message, fds: list[int]) -> None:
        self.say({"from": name, "message": type(message).__name__, "fds": len(fds)})
        match message:
            case Attached():
                os.close(fds.pop())
                self.talk(f"worker {message.index}", socket.socket(fileno=fds[0]))
            case LoaderAttached():
                os.close(fds.pop())
                self.talk(
                    "loader" if message.purpose == "versions" else "delta loader",
                    socket.socket(fileno=fds[0]),
                )
            case NewSupervisor():
                self.talk("supervisor", socket.socket(fileno=fds[0]))
            case Hello():
                os.close(fds[0])
            case Drain() if not self.stays:
                sys.exit(0)

    def on_stage(self) -> None:
        line = self.lines.readline()
        if not line:
            sys.exit(0)
        order = json.loads(line)
        getattr(self, f"do_{order.pop('do')}")(**order)

    def do_exit(self, code: int) -> None:
        sys.exit(code)

    def do_load(self, purpose: Purpose = "versions", gives_way: bool = False) -> None:
        self.channels["launcher"].send(StartLoader(purpose, gives_way))

    def do_serve(self) -> None:
        SharedWords.open(self.boot.descriptors["epochs"], writable=True).store(17, 1)
        self.say({"served": True})

    def do_listen(self) -> None:
        listener = socket.socket(fileno=self.boot.descriptors["metrics"])
        listener.listen(16)
        self.loop.add_reader(listener.fileno(), lambda: listener.accept()[0].close())
        self.say({"listening": listener.getsockname()[1]})

    def do_stay(self) -> None:
        self.stays = True
        self.say({"stays": True})

    def do_babble(self) -> None:
        os.write(self.boot.descriptors["launcher"], b"\xff")

    def do_balance(self, word: int = 0) -> None:
        words = SharedWords.open(self.boot.descriptors["balance"], writable=True)
        self.say({"balance": words.add(word, 1)})

    def do_put(self, into: int) -> None:
        outbox = socket.socket(fileno=os.dup(self.boot.descriptors[f"outbox{into}"]))
        with outbox:
            socket.send_fds(outbox, [b"from %d" % self.boot.index], [0])
        self.say({"put": into})

    def do_take(self) -> None:
        with socket.socket(fileno=os.dup(self.boot.descriptors["inbox"])) as inbox:
            data, fds, _, _ = socket.recv_fds(inbox, 100, 1)
        for fd in fds:
            os.close(fd)
        self.say({"took": data.decode(), "fds": len(fds)})

    def do_orphan(self) -> None:
        script = "import os; os.fork() or os.execvp('sleep', ['sleep', '0.05'])"
        subprocess.run([sys.executable, "-c", script], check=True)
        self.say({"orphaned": True})


def main() -> None:
    """Play until told to leave, or until nobody watches."""
    actor = Actor(read_boot(sys.argv))
    while True:
        for key, _ in actor.loop.selector.select():
            key.data()


if __name__ == "__main__":
    main()
