"""One task for each model: whatever happens to the model happens in it, one thing at a time.

But for one thing that may take minutes: while a version is looked at, what is served gets its
deltas, and somebody who wants something gone ends the look, which begins anew where it must.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from anabranch_server.administration import Action, ActionRequest
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.keeper_actions import carry_out, check_action
from anabranch_server.supervisor.keeper_state import KeptModel
from anabranch_server.supervisor.keeper_waking import GAVE_WAY, Waking
from anabranch_server.supervisor.operations import Operation
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.watching import SeenModel
from anabranch_wire.errors import AnabranchError, Conflict, Internal

__all__ = ["ModelKeeper"]

_log = logging.getLogger(__name__)

_AT_ONCE: Final = frozenset[Action]({"rollback", "unload"})
_AGAIN_S: Final = 10.0
"""After a fault of ours: often enough to recover, too seldom to loop."""


class ModelKeeper:
    """Keeps one model at what it should serve. Belongs to the event loop.

    Args:
        name: of the model.
        around: what it works with.
        adopted: what workers serve already.
        is_named: whether it is a model even without a folder.

    Attributes:
        kept: the model; read-only for others.
        settled: set whenever nothing is left to do for now.
    """

    def __init__(
        self, name: str, around: Surroundings, adopted: StatePlan | None, *, is_named: bool
    ) -> None:
        self._waking = Waking()
        self.kept = KeptModel(name, around, adopted, self._waking, is_named=is_named)
        self.settled = asyncio.Event()
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._operations: list[Operation] = []  # at work or waiting; the newest is the last
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the model is gone and `run` has ended, or is about to."""
        return self._is_over

    def see(self, seen: SeenModel | None) -> None:
        """Take what the repository has now; the same look again costs nothing."""
        if seen is not self.kept.seen:
            self.kept.seen = seen
            self.nudge()

    def nudge(self) -> None:
        """Look again at what is to be done."""
        self.settled.clear()
        self._waking.news.set()

    def begin(
        self,
        action: Action,
        request: ActionRequest,
        operation: Operation,
        look: Callable[[], Awaitable[object]],
    ) -> None:
        """Begin an action that was checked just now; `operation` ends with it.

        Args:
            action: what to do.
            request: what it was told.
            operation: of the action.
            look: looks at the repository and tells what it saw.
        """
        self._operations = [one for one in self._operations if not one.is_over]
        self._operations.append(operation)

        async def act() -> None:
            self._waking.is_urgent = action in _AT_ONCE
            self._waking.urges -= self._waking.is_urgent
            self.kept.loads.on_progress = operation.advance
            try:
                if action == "reload":
                    await look()
                error = await carry_out(self.kept, action, request)
                if error is GAVE_WAY and action == "unload" and self._is_unloaded(request.version):
                    error = None  # only the rest was left
            except asyncio.CancelledError:
                operation.cancel()
                raise
            except AnabranchError as fault:
                error = fault
            except Exception as fault:
                operation.finish(Internal(f"{type(fault).__name__} during {action}"))
                raise
            finally:
                self._waking.is_urgent = False
                self.kept.loads.on_progress = lambda progress: None
            operation.finish(error)

        self._jobs.append(act)
        self._waking.urges += action in _AT_ONCE
        self.nudge()

    def check(self, action: Action, request: ActionRequest) -> None:
        """Check that an action could begin now.

        Raises:
            NotFound: there is no such version.
            Conflict: an action is at work already, and this one is none that it gives way to.
            InvalidInput: the request makes no sense for the action.
        """
        at_work = self._operations[-1] if self._operations else None
        gives_way = at_work is not None and action in _AT_ONCE and at_work.action != "rollback"
        if at_work is not None and not at_work.is_over and not gives_way:
            raise Conflict(
                f"model {self.kept.name!r}: {at_work.action} ({at_work.id}) is at work; "
                "wait for its end"
            )
        check_action(self.kept, action, request)

    async def set_labels(self, labels: dict[str, int | None]) -> None:
        """Merge labels into those set before; returns when they are in force, or refused.

        Raises:
            AnabranchError: they cannot be kept.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def act() -> None:
            merged = {**self.kept.intent.labels, **labels}
            kept = {label: version for label, version in merged.items() if version is not None}
            intent = replace(self.kept.intent, labels=kept)
            try:
                error = await self.kept.converge(intent)
            except Exception as fault:
                done.set_exception(Internal(f"{type(fault).__name__} while labels were set"))
                raise
            if done.done():
                return
            if error is GAVE_WAY:
                self._jobs.append(act)
                return
            if error is not None and self.kept.intent != intent:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._waiting.add(done)
        done.add_done_callback(self._waiting.discard)
        self._jobs.append(act)
        self.nudge()
        await done

    async def run(self) -> None:
        """Keep the model until it is gone from the repository, or this is cancelled."""
        try:
            while True:
                await self._waking.news.wait()
                self._waking.news.clear()
                await self._turn()
                if self._is_gone():
                    self._is_over = True
                    return
        finally:
            for operation in self._operations:
                operation.cancel()
            for waiting in tuple(self._waiting):
                waiting.cancel()
            self._set_timer(None)

    async def _turn(self) -> None:
        """Do everything that is to be done now."""
        try:
            while self._jobs:
                await self._jobs.popleft()()
            begun_s = asyncio.get_running_loop().time()
            await self.kept.converge()
        except Exception:  # the edge of the task: one model never ends the others
            _log.exception(
                "model %s: keeping it failed",
                self.kept.name,
                extra={"event": "internal_error", "model": self.kept.name},
            )
            self._set_timer(asyncio.get_running_loop().time() + _AGAIN_S)
        else:
            self._set_timer(self.kept.wake_at_s(begun_s))
        if self._jobs:
            self._waking.news.set()
        if not self._waking.news.is_set():
            self.settled.set()

    def _is_unloaded(self, version: int | None) -> bool:
        """Whether a version is served no more; None is all of the model."""
        served = () if self.kept.state is None else self.kept.state.served
        return not served if version is None else version not in served

    def _is_gone(self) -> bool:
        kept = self.kept
        return not kept.is_wanted and kept.state is None and not self._jobs

    def _set_timer(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None and math.isfinite(at_s):
            with suppress(RuntimeError):  # the loop is closing
                self._timer = asyncio.get_running_loop().call_at(at_s, self.nudge)
