"""Models to be judged: what is published, what is asked, and what the numbers of an answer tell."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch_testing.marked_rows import ROWS
from anabranch_testing.telling_models import INPUT_WIDTH, publish_telling
from anabranch_testing.telling_tables import TABLES, keys_of, publish_telling_tables
from chaos.producing import publish_numbered
from openloop import post

__all__ = ["DELTAS", "REWRITTEN", "TABLED", "TELLING", "Subject", "requests_of"]

_TABLE_ROWS: Final = 50_000
"""Of each table: a version that is never let go is 4 MB that show."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model whose answers tell what they were computed from.

    Attributes:
        model: its name.
        publish: publishes a version, given the model's folder and the number.
        bodies: what is asked, in turn.
        markers: outputs whose numbers are the marker of the rows; all others tell the version.
        module: what stands for the command of the server.
        options: more options of the server.
        deltas: whether a trainer of its own publishes deltas of it, and versions; all numbers are
            then that of the snapshot, see `chaos.numbers`.
        generations: that a process may have mapped when all is quiet.
    """

    model: str
    publish: Callable[[Path, int], None]
    bodies: tuple[Mapping[str, Any], ...]
    markers: frozenset[str] = field(default_factory=frozenset)
    module: str = "anabranch_server"
    options: tuple[str, ...] = ()
    deltas: bool = False
    generations: int = 0


def requests_of(subject: Subject, address: str) -> list[bytes]:
    """Return whole requests, to be sent in turn."""
    target = f"/v2/models/{subject.model}/infer"
    headers = {"Content-Type": "application/json"}
    return [post(address, target, json.dumps(one).encode(), headers) for one in subject.bodies]


def _dense_body() -> Mapping[str, Any]:
    tensor = {
        "name": "x", "shape": [2, INPUT_WIDTH], "datatype": "FP32", "data": [0.5] * 2 * INPUT_WIDTH,
    }  # fmt: skip
    return {"inputs": [tensor]}


def _table_bodies(rows: int, asked: Sequence[int]) -> tuple[Mapping[str, Any], ...]:
    """Requests of so many rows each, for keys that are spread over the tables."""
    return tuple(
        {
            "inputs": [
                {
                    "name": name,
                    "datatype": "INT64",
                    "shape": [count, 1],
                    "data": keys_of(index, rows)[first :: rows // count][:count].tolist(),
                }
                for index, name in enumerate(TABLES)
            ]
        }
        for first, count in enumerate(asked)
    )


TELLING: Final = Subject("telling", publish_telling, (_dense_body(),))
"""A dense graph alone."""

TABLED: Final = Subject(
    "tabled",
    partial(publish_telling_tables, rows=_TABLE_ROWS),
    _table_bodies(_TABLE_ROWS, (1, 5, 40)),
    generations=2,  # of the version and of the one before, which is kept
)
"""Tables beside the graph: rows and weights of a version are its number."""

DELTAS: Final = Subject(
    "updated",
    publish_numbered,
    _table_bodies(ROWS, (1, 5, 40)),
    options=("--poll-s", "0.2"),
    deltas=True,
    generations=3,  # of both versions that are kept, and one more where room has just been made
)
"""As `TABLED`, but a trainer publishes deltas too, and some that are damaged."""

REWRITTEN: Final = Subject(
    "m",  # as the supervisor that rewrites rows has it
    publish_telling_tables,
    _table_bodies(ROWS, (1, 5, 40)),
    markers=frozenset({"low", "high"}),
    module="anabranch_testing.processes.rewriting",
    options=("--poll-s", "0.2"),
    generations=3,  # one more where room has just been made
)
"""As `TABLED`, but rows change all the time, from version to version as within one."""
