"""A supervisor that kills itself at a step of a switch; see `mortal`."""

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from anabranch_server.processes.boot import Boot
from anabranch_server.processes.messages import Prepare
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor import process, start
from anabranch_server.supervisor.effects import Change, Decide, Effect, Publish, Send
from anabranch_server.supervisor.participants import Draft
from anabranch_server.supervisor.stores import Stores
from anabranch_server.supervisor.transactions import Transactions

__all__ = ["STEPS"]

STEPS: Final = ("staged", "asking", "asked", "agreed", "durable", "decided", "published")
"""In a switch: when rows are staged, before the first worker is asked and after the last one was,
when all are prepared, when it is durable, when rows are applied, when the word is stored."""

_run_dir = Path()


def _die_at(step: str) -> None:
    order = _run_dir / "die_at"
    if order.exists() and order.read_text() == step:
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class _MortalTransactions(Transactions):
    def _carry_out(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        kinds = {type(effect) for effect in effects}
        asks = any(isinstance(one, Send) and isinstance(one.message, Prepare) for one in effects)
        if asks:
            _die_at("asking")
        if Decide in kinds:
            _die_at("agreed")
        if Publish in kinds:
            _die_at("decided")
        super()._carry_out(effects)
        if asks:
            _die_at("asked")
        if Publish in kinds:
            _die_at("published")


class _MortalStores(Stores):
    async def prepare(self, draft: Draft) -> StatePlan | None:
        state = await super().prepare(draft)
        _die_at("staged")
        return state

    async def apply(self, change: Change) -> None:
        _die_at("durable")
        await super().apply(change)


class _MortalProcess(process.SupervisorProcess):
    def __init__(self, boot: Boot) -> None:
        global _run_dir
        _run_dir = Path(boot.run_dir)
        super().__init__(boot)


if __name__ == "__main__":
    setattr(process, "Stores", _MortalStores)  # noqa: B010 - not exported
    setattr(process, "Transactions", _MortalTransactions)  # noqa: B010 - not exported
    setattr(start, "SupervisorProcess", _MortalProcess)  # noqa: B010
    start.run_supervisor(sys.argv)
