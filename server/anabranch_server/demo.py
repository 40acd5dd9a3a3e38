"""The main job on real input: rank every item of the shop for users of the recorded days.

`run_demo` asks a server that somebody else started, as any client would, and prints what it got
and measured; the expected scores were recorded when the model was trained.
"""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from anabranch_client import Client
from anabranch_server.demo_requests import MODEL, RecordedUser, Recording, load
from anabranch_server.trimmed import trimmed_console

__all__ = ["DemoUrls", "Inputs", "Ranking", "Score", "print_rankings", "rank", "run_demo"]

Inputs: TypeAlias = Mapping[str, NDArray[np.int64] | NDArray[np.float32]]

Score: TypeAlias = Callable[[Inputs], NDArray[np.float32]]
"""Model inputs of N rows -> (N,) probabilities."""

_OUTPUT: Final = "click"
_SHOWN: Final = (0, -2, -1)  # one user without and two with past clicks
_SHOWN_ITEMS: Final = 5
_TOLERANCE: Final = 1e-6
"""Difference from a recorded score that float32 explains; scores are near 0.005."""


@dataclass(frozen=True, slots=True)
class DemoUrls:
    """Where the server listens, as URLs without a path.

    Attributes:
        http: the data port.
        metrics: the metrics port.
        admin: the admin port.
    """

    http: str
    metrics: str
    admin: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """One answered request.

    Attributes:
        user: whose items were ranked.
        scores: (80,) float32; probability of a click, in order of item id.
        order: (80,) int64; item ids, best first, the lower id first among equals.
        seconds: from the call to the answer, on the client's side.
    """

    user: RecordedUser
    scores: NDArray[np.float32]
    order: NDArray[np.int64]
    seconds: float

    @property
    def difference(self) -> float:
        """Largest difference from a recorded score."""
        return float(np.abs(self.scores - np.array(self.user.expected, np.float32)).max())


def run_demo(urls: DemoUrls, out: TextIO) -> bool:
    """Rank all items for the recorded users, one request a user, and print what came back.

    Args:
        urls: addresses of a server that serves the demo's models and is ready.
        out: where to print; with colours if it is a terminal, else plain.

    Returns:
        Whether the scores are those recorded at training.

    Raises:
        AnabranchError: the server refused a request or could not be reached.
    """
    with Client(urls.http) as client:

        def score(inputs: Inputs) -> NDArray[np.float32]:
            clicks = client.score(MODEL, inputs).outputs[_OUTPUT]
            return clicks.astype(np.float32, copy=False)[:, 0]

        rankings = rank(load(), score)
    with trimmed_console(out) as console:
        print_rankings(console, rankings)
        console.print(f"API docs   {urls.http}/docs")
        console.print(f"metrics    {urls.metrics}/metrics")
        console.print(f"admin      {urls.admin}/")
    return max(ranking.difference for ranking in rankings) <= _TOLERANCE


def rank(recording: Recording, score: Score) -> Sequence[Ranking]:
    """Score every item for every recorded user, one call of `score` after the other."""
    rankings: list[Ranking] = []
    for user in recording.users:
        inputs = recording.inputs(user)
        begin = time.perf_counter()
        scores = score(inputs)
        seconds = time.perf_counter() - begin
        rankings.append(Ranking(user, scores, np.argsort(-scores, kind="stable"), seconds))
    return rankings


def print_rankings(console: Console, rankings: Sequence[Ranking]) -> None:
    """Print the top items of a few users, how long all took, and whether they are as recorded."""
    items = len(rankings[0].scores)
    console.print(
        f"A click model ranks all {items} items of a fashion shop for {len(rankings)} real users, "
        "who came after the days it was trained on.\n"
    )
    for ranking in (rankings[index] for index in _SHOWN):
        console.print(_heading(ranking.user), style="bold")
        console.print(_table(ranking))
    milliseconds = sorted(ranking.seconds * 1e3 for ranking in rankings)
    difference = max(ranking.difference for ranking in rankings)
    verdict = "as" if difference <= _TOLERANCE else "[bold red]NOT[/] as"
    console.print(
        f"{len(rankings)} requests of {items} items: median {np.median(milliseconds):.2f} ms, "
        f"slowest {milliseconds[-1]:.2f} ms"
    )
    console.print(f"scores {verdict} recorded at training: largest difference {difference:.0e}\n")


def _heading(user: RecordedUser) -> str:
    moment = datetime.datetime.fromtimestamp(user.time, datetime.UTC)
    groups = " ".join(group[:6] for group in user.groups)
    history = ", ".join(f"item {item_id}" for item_id, _ in user.affinity) or "nothing yet"
    return f"{moment:%d %B %Y, %H:%M} UTC, user {groups}, clicked before: {history}"


def _table(ranking: Ranking) -> Table:
    """The best items, and the one that the shop really showed, with its rank."""
    user = ranking.user
    clicked_before = {item_id for item_id, _ in user.affinity}
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for heading in ("rank", "item", "click"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for place, item_id in enumerate(ranking.order.tolist()):
        notes = ["clicked before"] if item_id in clicked_before else []
        if item_id == user.shown.item_id:
            notes.append(f"shown by the shop, {'' if user.shown.clicked else 'not '}clicked")
        if place < _SHOWN_ITEMS or item_id == user.shown.item_id:
            click = f"{ranking.scores[item_id]:.3%}"
            table.add_row(str(place + 1), str(item_id), click, "; ".join(notes))
    return table
