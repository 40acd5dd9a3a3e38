"""The main job on real input: rank every item of the shop for users of the recorded days.

`run_demo` asks a server that somebody else started, as any client would: raw features of a user and
ids of items, over HTTP and gRPC. It prints what it got and measured; the expected scores were
recorded when the model was trained.
"""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from anabranch_client import Client
from anabranch_server.demo_requests import MODEL, RawRanking, RecordedUser, Recording, load
from anabranch_server.trimmed import trimmed_console

__all__ = ["Answer", "DemoUrls", "Door", "Ranking", "print_rankings", "rank", "run_demo"]


class Answer(NamedTuple):
    """What a ranking door says.

    Attributes:
        ids: (k,) int64; item ids, best first.
        scores: (k,) float32, in that order.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]


Door: TypeAlias = Callable[[RawRanking], Answer]
"""Asks a server for a ranking."""

_SHOWN: Final = (0, -2, -1)  # one user without and two with past clicks
_SHOWN_ITEMS: Final = 5
_TOLERANCE: Final = 1e-6
"""Difference from a recorded score that float32 explains; scores are near 0.005."""


@dataclass(frozen=True, slots=True)
class DemoUrls:
    """Where the server listens, as URLs without a path.

    Attributes:
        http: the data port for HTTP.
        grpc: the data port for gRPC.
        metrics: the metrics port.
        admin: the admin port.
    """

    http: str
    grpc: str
    metrics: str
    admin: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """One answered request.

    Attributes:
        user: whose items were ranked.
        order: (80,) int64; item ids, best first.
        scores: (80,) float32; probability of a click, in order of item id.
        seconds: from the call to the answer, on the client's side.
    """

    user: RecordedUser
    order: NDArray[np.int64]
    scores: NDArray[np.float32]
    seconds: float

    @property
    def difference(self) -> float:
        """Largest difference from a recorded score; infinite where an item was not scored."""
        differences = np.abs(self.scores - np.array(self.user.expected, np.float32))
        return float(np.nan_to_num(differences, nan=np.inf).max())


def run_demo(urls: DemoUrls, out: TextIO) -> bool:
    """Rank all items for the recorded users over both doors, and print what came back.

    Args:
        urls: addresses of a server that serves the demo's models and is ready.
        out: where to print; with colours if it is a terminal, else plain.

    Returns:
        Whether the scores are those recorded at training, over either door.

    Raises:
        AnabranchError: the server refused a request or could not be reached.
    """
    recording = load()
    rankings: dict[str, Sequence[Ranking]] = {}
    for name, url in (("HTTP", urls.http), ("gRPC", urls.grpc)):
        with Client(url) as client:
            rankings[name] = rank(recording, _door(client))
    with trimmed_console(out) as console:
        print_rankings(console, rankings)
        console.print(f"API docs   {urls.http}/docs")
        console.print(f"metrics    {urls.metrics}/metrics")
        console.print(f"admin      {urls.admin}/")
    return _difference(rankings) <= _TOLERANCE


def rank(recording: Recording, door: Door) -> Sequence[Ranking]:
    """Rank every item for every recorded user, one request after the other."""
    rankings: list[Ranking] = []
    for user in recording.users:
        request = recording.ranking(user)
        begin = time.perf_counter()
        answer = door(request)
        seconds = time.perf_counter() - begin
        scores = np.full(len(recording.items), np.nan, np.float32)
        scores[answer.ids] = answer.scores
        rankings.append(Ranking(user, answer.ids, scores, seconds))
    return rankings


def _door(client: Client) -> Door:
    def ask(request: RawRanking) -> Answer:
        ranked = client.rank(MODEL, request.user, request.candidates)
        return Answer(np.asarray(ranked.ids, np.int64), ranked.scores)

    return ask


def print_rankings(console: Console, rankings: Mapping[str, Sequence[Ranking]]) -> None:
    """Print the top items of a few users, how long all took, and whether they are as recorded.

    Args:
        console: where to print.
        rankings: door -> what it answered for the same users.
    """
    shown = next(iter(rankings.values()))
    items = len(shown[0].scores)
    console.print(
        f"A click model ranks all {items} items of a fashion shop for {len(shown)} real users, "
        "who came after the days it was trained on.\n"
    )
    for ranking in (shown[index] for index in _SHOWN):
        console.print(_heading(ranking.user), style="bold")
        console.print(_table(ranking))
    for door, answered in rankings.items():
        milliseconds = sorted(ranking.seconds * 1e3 for ranking in answered)
        console.print(
            f"{len(answered)} requests of {items} items over {door}: "
            f"median {np.median(milliseconds):.2f} ms, slowest {milliseconds[-1]:.2f} ms"
        )
    difference = _difference(rankings)
    verdict = "as" if difference <= _TOLERANCE else "[bold red]NOT[/] as"
    console.print(f"scores {verdict} recorded at training: largest difference {difference:.0e}\n")


def _difference(rankings: Mapping[str, Sequence[Ranking]]) -> float:
    """Largest difference from a recorded score; infinite where an item was not scored."""
    return max(ranking.difference for answered in rankings.values() for ranking in answered)


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
