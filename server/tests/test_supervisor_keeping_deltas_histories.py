"""Random histories of publishing, damage, rollbacks and restarts: what a model serves all along."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch_server.administration import Action, ActionRequest
from anabranch_server.processes.plans import StatePlan
from anabranch_testing.keepers import KeptServer, MemorySwitching, kept_server, write_version
from anabranch_testing.published_deltas import write_delta
from anabranch_wire.errors import NotFound, Unavailable

MOST = 20
"""Deltas of a version."""


class Histories(RuleBasedStateMachine):
    """One model. `ways` has what each good delta can be applied on."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.root = Path(self.folder.name) / "models"
        self.version = self.root / "m" / "1"
        self.state = Path(self.folder.name) / "state"
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.launches = 0
        self.late_s = 0.0
        self.since: dict[int, int] = {}  # what each published delta replaces from
        self.bad: set[int] = set()
        self.ever_good: dict[int, set[int]] = {}  # delta -> what it replaced from when it was good
        self.held: int | None = None
        self.highest = 0
        self.is_pressed = False

    # --- the server -----------------------------------------------------------------------------

    @initialize(there=st.integers(0, 4))
    def start(self, there: int) -> None:
        self.root.mkdir()
        write_version(self.root / "m", 1)
        for number in range(1, there + 1):
            self._write(number, number, bad=False)
        self._begin(None)

    @rule(is_launcher_alive=st.booleans())
    def restart(self, is_launcher_alive: bool) -> None:
        """The supervisor is replaced, or the whole server is."""
        left = dict(self.server.switching.states) if is_launcher_alive else None
        self._end()
        if left is None:
            self.launches += 1
            self.highest = 0
        self._begin(left)

    def _begin(self, left: dict[str, StatePlan] | None) -> None:
        async def begin() -> KeptServer:
            loop = asyncio.get_running_loop()
            now = type(loop).time
            loop.time = lambda: now(loop) + self.late_s  # type: ignore[method-assign]  # a stand-in's
            return await self.stack.enter_async_context(
                kept_server(
                    self.root,
                    self.state,
                    switching=MemorySwitching(left),
                    launch=str(self.launches),
                )
            )

        self.server = self.runner.run(begin())
        self.is_pressed = False

    def _end(self) -> None:
        self.runner.run(self.stack.aclose())
        self.stack = AsyncExitStack()

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self._ease()
            self.wait()
        self._end()
        self.runner.close()
        self.folder.cleanup()

    def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        async def done() -> None:
            await work()
            await self.server.settled()

        self.runner.run(done())

    def _look(self) -> None:
        self._do(self.server.look)

    # --- the trainer ----------------------------------------------------------------------------

    @rule(
        kinds=st.lists(st.sampled_from(["good", "good", "good", "bad", "gap", "all"]), min_size=1)
    )
    def publish(self, kinds: list[str]) -> None:
        """The next numbers; where one is missing, the one beyond it."""
        for kind in kinds[:4]:
            number = max(self.since, default=0) + (2 if kind == "gap" else 1)
            if number <= MOST:
                since = max(1, number - 5) if kind == "all" else number
                self._write(number, since, bad=kind == "bad")
        self._look()

    @precondition(lambda self: len(self.since) < max(self.since, default=0))
    @rule()
    def fill(self) -> None:
        """What is missing comes late."""
        number = min(n for n in range(1, max(self.since)) if n not in self.since)
        self._write(number, number, bad=False)
        self._look()

    @precondition(lambda self: bool(self.bad))
    @rule()
    def repair(self) -> None:
        number = min(self.bad)
        self._write(number, self.since[number], bad=False)
        self._look()

    def _write(self, number: int, since: int, *, bad: bool) -> None:
        self.since[number] = since
        extra: dict[str, object] = {"broken": "cut off"} if bad else {}
        write_delta(self.version, number, replaces_from=since, extra=extra)
        self.bad.discard(number)
        if bad:
            self.bad.add(number)
        else:
            self.ever_good.setdefault(number, set()).add(since)

    # --- the surroundings -----------------------------------------------------------------------

    @rule()
    def press(self) -> None:
        """Memory is short, or no longer: deltas cannot be switched to meanwhile."""
        if self.is_pressed:
            self._ease()
            return
        self.is_pressed = True
        served = self._delta()
        self.server.switching.refuse = lambda state: (
            Unavailable("no room")
            if state is not None and any(one.delta != served for one in state.versions)
            else None
        )

    def _ease(self) -> None:
        self.is_pressed = False
        self.server.switching.refuse = lambda state: None

    @rule(seconds=st.sampled_from([1.0, 11.0, 61.0, 301.0]))
    def pass_time(self, seconds: float) -> None:
        self.late_s += seconds
        self.server.keeping.nudge()
        self._do(self.server.settled)

    @rule()
    def nothing(self) -> None:
        """Looks at what has not changed cost no request."""
        before = (len(self.server.named_loader.requests), len(self.server.named_loader.applied))
        for _ in range(3):
            self.server.keeping.nudge()
            self._look()
        now = (len(self.server.named_loader.requests), len(self.server.named_loader.applied))
        assert now == before

    # --- people ---------------------------------------------------------------------------------

    @rule(back=st.none() | st.integers(-2, 5))
    def roll_back(self, back: int | None) -> None:
        before = self._delta()
        delta = None if back is None else max(0, before - back)

        async def act() -> None:
            try:
                done = await self.server.admin.act("rollback", "m", ActionRequest(1, delta))
            except NotFound:
                assert delta not in self.since
                assert self._delta() == before
                return
            if done.state == "DONE":
                self.held = self._delta()
                assert delta in (None, self.held)
            else:
                assert self._delta() == before

        self._do(act)

    @rule(action=st.sampled_from(["unpin", "reload"]), flag=st.booleans())
    def ask(self, action: Action, flag: bool) -> None:
        """Release the hold, or have everything tried again."""
        is_reload = action == "reload"
        request = ActionRequest(unpin=is_reload and flag, force=is_reload and not flag)

        async def act() -> None:
            await self.server.admin.act(action, "m", request)

        self._do(act)
        if request.unpin or not is_reload:
            self.highest, self.held = 0, None

    # --- what holds all along -------------------------------------------------------------------

    def _delta(self) -> int:
        return self.server.state().versions[0].delta

    def _reach(self, ways: dict[int, set[int]]) -> set[int]:
        reached = {0}
        while True:
            more = {
                number
                for number, starts in ways.items()
                for since in starts
                if any(since <= at + 1 <= number for at in reached)
            }
            if more <= reached:
                return reached
            reached |= more

    @invariant()
    def a_delta_is_served_that_good_ones_lead_to(self) -> None:
        if hasattr(self, "server"):
            assert self._delta() in self._reach(self.ever_good)

    @invariant()
    def nothing_goes_back_without_a_rollback(self) -> None:
        if hasattr(self, "server") and self.held is None:
            assert self._delta() >= self.highest
            self.highest = self._delta()

    @invariant()
    def what_is_held_stays(self) -> None:
        if hasattr(self, "server") and self.held is not None:
            assert self._delta() <= self.held
            assert self.server.admin.model("m").pinned == (f"1+{self.held}" if self.held else "1")

    @rule()
    def wait(self) -> None:
        """What can be reached is served in the end, and what is held at just that delta."""
        if self.is_pressed:
            return
        self.pass_time(301.0)
        self._look()
        limit = MOST if self.held is None else self.held
        good = {n: {s} for n, s in self.since.items() if n not in self.bad and n <= limit}
        assert self._delta() >= max(self._reach(good))

    @invariant()
    def the_records_say_what_is_served(self) -> None:
        if hasattr(self, "server"):
            record = json.loads((self.state / "m.json").read_bytes())
            assert [one["delta"] for one in record["versions"]] == [self._delta()]


Histories.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestHistories = Histories.TestCase
