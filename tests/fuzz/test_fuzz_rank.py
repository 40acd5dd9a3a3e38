"""Damaged ranking requests through both real ports: each is answered, none as a fault of ours."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest

from anabranch_runtime.ranking.requests import RankRequest as Asked
from anabranch_server.doors import DoorContext
from anabranch_server.limits import Limits
from anabranch_server.ranking.json_requests import read_rank_json
from anabranch_testing.doors import door_context
from anabranch_testing.http_doors import HttpDoor, Peer, http_door, infer_request
from anabranch_testing.looked_up import key_of, open_store, view_of
from anabranch_testing.mutations import fuzz_cases, mutated
from anabranch_testing.ranked_doors import RANK, message_of
from anabranch_testing.ranked_models import (
    ranked_lookups,
    ranked_lookups_plan,
    ranked_model,
    ranked_plan,
)
from anabranch_testing.rpc import open_door
from anabranch_wire.errors import AnabranchError
from anabranch_wire.ranking import FLOAT32, INT64, STRING, TYPE_UNSPECIFIED, RankRequest

PLANS = {
    "ranked": ranked_plan(),
    "reports": ranked_plan(report_bad=True),
    "looked": ranked_lookups_plan(),
}
LIMITS = Limits(
    max_body_bytes=100_000,
    max_tensors=64,
    max_rows=10_000,
    max_elements=50_000,
    max_string_bytes=1000,
)
AT_ONCE = 40

SEEDS: list[tuple[str, dict[str, Any]]] = [
    (
        "ranked",
        {
            "id": "r-1",
            "user": {"age": 20.5, "country": "at"},
            "candidates": {
                "item_id": [11, 12, 2**53 + 1],
                "price": [9.5, 1e-7, float("nan")],
                "tags": [[1, 2], [], None],
            },
            "top_k": 2,
            "outputs": ["ctr", "both"],
            "explain": True,
            "parameters": {"timeout": 5_000_000, "priority": 1, "routing_key": "u"},
        },
    ),
    (
        "reports",
        {
            "user": {"country": "d\u00e9"},
            "candidates": {"item_id": ["11", 12], "price": [1, "2"], "tags": [[1, 2, 3, 4], [5]]},
        },
    ),
    (
        "looked",
        {
            "user": {"clicks": [key_of(1), key_of(2), 7]},
            "candidates": {
                "x": [1.0, 2.0],
                "city": [key_of(3), key_of(4)],
                "tags": [{"ids": [key_of(5)], "weights": [0.5]}, {"ids": []}],
                "pair": [[key_of(1), key_of(2)], [key_of(3), key_of(4)]],
            },
            "explain": True,
        },
    ),
]

JSON_TOKENS = [
    *(bytes([code]) for code in b"{}[],:\"\\0123456789.eE+- \t\n\x00\x7f\xff"),
    b"null", b"true", b"false", b"NaN", b"-Infinity", b"1e999", b"-0", b"0.1e-400", b"{}", b"[]",
    b"9223372036854775808", b"123456789012345678901234567890", b"\\u0000", b"\\ud800", b'"x"',
    b"\xc3\xa9", b"\xed\xa0\x80", b"[[[[", b"]]]]", b'"ids":', b'"weights":[1,2],', b'"age":1,',
    b'"item_id":[],', b'"top_k":-1,', b'"outputs":["ctr"],', b'"explain":true,', b'"user":{},',
    b"[" * 40, b'{"a":' * 40, b"1," * 100, b"[]," * 100, b'"9001"',
]  # fmt: skip

MESSAGE_TOKENS = [
    *(bytes([tag]) for tag in range(0, 128, 2)),  # tags of small fields
    b"\x00", b"\x0b", b"\x80" * 9 + b"\x01", b"\x80" * 10, b"\xff" * 9 + b"\x01",
    b"\x22\x00", b"\x2a\x00", b"\x2a\x00" * 300, b"\x3a\x00", b"\x0a\x00", b"\x12\x00",
    b"\x1a\x01\x7f", b"\x1a\x0a" + b"\xff" * 9 + b"\x01", b"\x22\x04\x00\x00\x80\x3f",
    b"\x2a\x02ab", b"\x32\x04\x01\x00\x00\x00", b"\x32\x04\xff\xff\xff\xff", b"\x12\x08" + bytes(8),
    b"\x08\x01", b"\x08\x02", b"\x08\x63", b"price", b"item_id", b"country", b"looked", b"ranked",
    b"\xc3\x28", b"\xed\xa0\x80", b"\xff\xff\xff\xff", b"\x00\x00\xc0\x7f",
]  # fmt: skip


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    folder: Path = tmp_path_factory.mktemp("models")
    models = {
        "ranked": ranked_model(folder / "ranked"),
        "reports": ranked_model(folder / "reports"),
        "looked": ranked_lookups(folder / "looked"),
    }
    stores = {"looked": view_of(open_store(folder / "store"))}
    with door_context(models, limits=LIMITS, stores=stores, rankings=PLANS) as context:
        yield context


@pytest.fixture(scope="module")
def door(context: DoorContext) -> Iterator[HttpDoor]:
    with http_door(context) as door:
        yield door


@pytest.fixture(scope="module")
def channel(context: DoorContext) -> Iterator[grpc.Channel]:
    with open_door(context, threads=8) as (_, channel):
        yield channel


def test_damaged_json(door: HttpDoor) -> None:
    statuses: Counter[int] = Counter()
    for model, document in SEEDS:
        seed = json.dumps(document).encode()
        path = f"/v1/models/{model}:rank"
        bodies = mutated([seed], JSON_TOKENS, fuzz_cases() // len(SEEDS))
        with Peer(door) as peer:
            while some := list(islice(bodies, AT_ONCE)):
                peer.send(b"".join([infer_request(body, path=path) for body in some]))
                for body in some:
                    response = peer.read()
                    statuses[response.status] += 1
                    assert response.status in (200, 400, 404, 413, 503, 504), body
                    if response.status != 200:
                        assert set(json.loads(response.body)) == {"error"}, body
    assert min(statuses[200], statuses[400]) > 0


def answered(channel: grpc.Channel, bodies: Iterable[bytes]) -> Counter[str]:
    """Send `bodies`, some at a time; return how often each status came."""
    call = channel.unary_unary(RANK, None, None)
    statuses: Counter[str] = Counter()
    rest = iter(bodies)
    while some := list(islice(rest, AT_ONCE)):
        futures = [call.future(body, timeout=30) for body in some]
        for body, future in zip(some, futures, strict=True):
            status = future.code().name
            statuses[status] += 1
            assert status in (
                *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"),
                "DEADLINE_EXCEEDED",
            ), (status, future.details(), body)
    return statuses


def test_damaged_messages(channel: grpc.Channel) -> None:
    plain = [
        (model, {**document, "candidates": without_nothing(document["candidates"])})
        for model, document in SEEDS
    ]
    seeds = [
        message_of(document, PLANS[model], model, raw=raw).SerializeToString()
        for model, document in plain
        for raw in (False, True)
    ]

    statuses = answered(channel, mutated(seeds, MESSAGE_TOKENS, fuzz_cases()))

    assert min(statuses["OK"], statuses["INVALID_ARGUMENT"], statuses["NOT_FOUND"]) > 0


def without_nothing(candidates: dict[str, Any]) -> dict[str, Any]:
    """Rows that a Column can carry."""
    return {name: [[] if row is None else row for row in rows] for name, rows in candidates.items()}


def test_well_formed_messages_with_wrong_columns(channel: grpc.Channel) -> None:
    dice = random.Random(3)

    statuses = answered(channel, (spoilt(dice) for _ in range(fuzz_cases())))

    assert min(statuses["OK"], statuses["INVALID_ARGUMENT"]) > 0


def spoilt(dice: random.Random) -> bytes:
    """A seed with one to three fields replaced by values of the right type."""
    model, document = dice.choice(SEEDS)
    candidates = without_nothing(document["candidates"])
    request = message_of({**document, "candidates": candidates}, PLANS[model], model)
    for _ in range(dice.randint(1, 3)):
        names = [*request.candidates, "nothing", ""]
        column = request.candidates[dice.choice(names)]
        match dice.randrange(9):
            case 0:
                column.int64s.extend([dice.choice((-(2**63), -1, 0, 2**63 - 1))] * 3)
            case 1:
                column.floats.extend([dice.choice((0.0, float("inf"), float("nan")))] * 2)
            case 2:
                column.strings.append(dice.choice((b"", b"\xff", b"12", b"x" * 2000)))
            case 3:
                column.raw = dice.randbytes(dice.choice((0, 1, 4, 8, 24)))
            case 4:
                column.type = dice.choice((TYPE_UNSPECIFIED, INT64, FLOAT32, STRING))
            case 5:
                column.lengths = dice.randbytes(dice.choice((0, 3, 4, 8)))
            case 6:
                column.weights = dice.randbytes(dice.choice((0, 3, 4, 8)))
            case 7:
                column.Clear()
            case _:
                request.outputs.append(dice.choice(("ctr", "score", "", "x" * 2000)))
                request.top_k = dice.choice((0, 1, 2**32 - 1))
    return request.SerializeToString()


def test_a_damaged_body_is_read_as_a_json_reader_reads_it() -> None:
    """What is taken apart is what Python's reader finds, and what it refuses is refused."""
    seeds = [json.dumps(document).encode() for _, document in SEEDS]
    read = 0
    for body in mutated(seeds, JSON_TOKENS, fuzz_cases()):
        request = parsed(body)
        if request is None:
            continue
        read += 1
        try:
            document = json.loads(body)
        except UnicodeDecodeError:  # columns of strings are looked at by whoever reads them
            continue
        except json.JSONDecodeError:  # so are numbers that run into a bare token
            assert b"NaN" in body or b"Infinity" in body, body
            continue
        for sent, columns in (
            (document.get("user", {}), request.user),
            (document["candidates"], request.candidates),
        ):
            assert set(sent) == set(columns), body
            for name, column in columns.items():
                assert repr(json.loads(bytes(column))) == repr(sent[name]), body
        assert list(request.outputs) == (document.get("outputs") or []), body
    assert read > 0


def parsed(body: bytes) -> Asked | None:
    try:
        return read_rank_json(body, LIMITS)
    except AnabranchError:
        return None


def test_the_seeds_are_good(door: HttpDoor, channel: grpc.Channel) -> None:
    for model, document in SEEDS:
        body = json.dumps(document).encode()
        with Peer(door) as peer:
            response = peer.ask(infer_request(body, path=f"/v1/models/{model}:rank"))
        assert response.status == 200, response.body
        plain = {**document, "candidates": without_nothing(document["candidates"])}
        if model != "reports":  # a number for each price
            message: RankRequest = message_of(plain, PLANS[model], model)
            assert answered(channel, [message.SerializeToString()]) == {"OK": 1}
