"""Deltas of a version with a store, applied from real files: what comes out, what is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.application import AppliedDeltas, DeltaCaches, apply_deltas
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.runs import RunFile
from anabranch_model_store.deltas.targets import DeltaTarget, Run
from anabranch_model_store.model_yaml import ModelMeaning, TableMeaning
from anabranch_model_store.serving_yaml import Deltas, Deployment
from anabranch_testing.written_deltas import (
    DeltaWriter,
    RowsWritten,
    StoreShape,
    safetensors_bytes,
    store_target,
)
from anabranch_wire.delta import Base, encode
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import AnabranchError, Conflict, Corrupt, Unavailable, Unsupported

Rows = dict[int, list[float] | None]

HASHED = StoreShape("emb", 3)
DENSE = StoreShape("ids", 5, keys="dense_id")


class Shop:
    """A version with a store, whoever publishes deltas for it, and whoever applies them."""

    def __init__(self, root: Path, *tables: StoreShape, **told: Any) -> None:
        self.target = store_target(root, *(tables or (HASHED, DENSE)), **told)
        self.writer = DeltaWriter(self.target.folder)
        self.root = root
        self.phases: list[str] = []

    def apply(self, upto: int, target: DeltaTarget | None = None) -> AppliedDeltas:
        """Apply deltas up to one, with what earlier calls left in the cache."""
        cache = self.root / "cache"
        caches = DeltaCaches(cache, RunCache(cache / "deltas", 1 << 30))
        given_target = target or self.target
        return apply_deltas(given_target, upto, LocalOrigin(), caches, self.phases.append)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def emb(rows: Rows, name: str = "emb", dtype: Any = np.float32) -> RowsWritten:
    """Return rows of two numbers; None deletes."""
    kept = {key: row for key, row in rows.items() if row is not None}
    values = np.array(list(kept.values()), dtype).reshape(len(kept), 2)
    return RowsWritten(name, list(kept), values, [key for key in rows if rows[key] is None])


def rows_of(*runs: Run | None, table: int = 0) -> Rows:
    """Return what runs, one after the other, make of a table."""
    found: Rows = {}
    for run in runs:
        assert run is not None
        file = RunFile.open(run.path)
        file.verify()
        for one in file.tables:
            if one.table == table:
                found.update(zip(one.keys.tolist(), one.values.tolist(), strict=True))
                found.update(dict.fromkeys(one.deleted.tolist()))
    return found


def spans(runs: tuple[Run, ...]) -> list[tuple[int, int]]:
    """Return what runs cover."""
    return [(run.first, run.last) for run in runs]


def refused(
    found: AppliedDeltas, sequence: int, reason: str, kind: type[AnabranchError], text: str
) -> None:
    """Check why deltas went no further."""
    assert found.fault is not None
    assert (found.fault.sequence, found.fault.reason) == (sequence, reason), found.fault
    assert type(found.fault.error) is kind
    assert text in found.fault.error.message
    assert found.target.snapshot.delta < sequence


# --- what comes out ------------------------------------------------------------------------------


def test_a_delta_becomes_a_run(shop: Shop) -> None:
    shop.writer.write(1, emb({7: [1, 2], -4: [3, 4], 2: None}), emb({4: [5, 6]}, "ids"))
    found = shop.apply(1)

    assert found.fault is None
    assert found.target.snapshot.delta == 1
    assert found.newest is not None
    assert (found.newest.step, found.upserts, found.deletes) == (10, 3, 1)
    assert found.bytes == sum(file.bytes for file in found.newest.files)
    assert found.increment is not None
    assert found.target.runs == (found.increment,)
    assert rows_of(found.increment) == {7: [1, 2], -4: [3, 4], 2: None}
    assert rows_of(found.increment, table=1) == {4: [5, 6]}
    assert shop.phases == ["fetching", "verifying"]


def test_a_backlog_is_one_change(shop: Shop) -> None:
    for number in range(1, 6):
        shop.writer.write(number, emb({1: [number, 0], number + 10: [number, number]}))
    shop.writer.write(6, emb({11: None}))
    found = shop.apply(6)

    assert spans(found.target.runs) == [(1, 6)]
    assert (found.upserts, found.deletes) == (10, 1)
    expected: Rows = {n + 10: [n, n] for n in range(1, 6)}
    assert rows_of(found.increment) == expected | {1: [5, 0], 11: None}


def test_later_deltas_follow_on_what_was_applied(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    first = shop.apply(1)
    shop.writer.write(2, emb({1: [2, 2]}))
    shop.writer.write(3, emb({3: [3, 3]}))
    second = shop.apply(3, first.target)

    assert second.increment is not None
    assert (second.increment.first, second.increment.last) == (2, 3)
    assert spans(second.target.runs) == [(1, 1), (2, 3)]
    assert rows_of(*second.target.runs) == {1: [2, 2], 3: [3, 3]}


def test_what_is_applied_is_not_applied_again(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    first = shop.apply(1)
    again = shop.apply(1, first.target)
    assert again.target is first.target
    assert (again.newest, again.increment, again.fault) == (None, None, None)


def test_a_second_time_takes_the_runs_of_the_first(shop: Shop) -> None:
    for number in (1, 2):
        shop.writer.write(number, emb({number: [1, 1]}))
    first = shop.apply(2)
    for number in (1, 2):
        (shop.writer.attempt(number) / "0000.safetensors").unlink()
    again = shop.apply(2)

    assert again.fault is None
    assert again.target.runs == first.target.runs
    assert again.increment == first.increment
    assert (again.upserts, again.deletes) == (2, 0)


def test_runs_that_were_merged_meanwhile_are_taken(shop: Shop, tmp_path: Path) -> None:
    target = shop.target
    for number in (1, 2, 3):
        shop.writer.write(number, emb({number: [1, 1]}))
        target = shop.apply(number, target).target
    cache = RunCache(tmp_path / "cache" / "deltas", 1 << 30)
    cache.merge(target.identity, target.runs)
    shop.writer.write(4, emb({4: [1, 1]}))

    assert spans(shop.apply(4, target).target.runs) == [(1, 3), (4, 4)]
    fresh = shop.apply(4)
    assert spans(fresh.target.runs) == [(1, 3), (4, 4)]
    assert fresh.increment is None, "its runs say it, one after the other"


def test_a_cumulative_delta_spares_those_before_it(shop: Shop) -> None:
    shop.writer.write(3, emb({1: [3, 3], 2: None}), replaces_from=1)
    shop.writer.write(4, emb({5: [4, 4]}))
    found = shop.apply(4)
    assert spans(found.target.runs) == [(1, 4)]
    assert rows_of(found.increment) == {1: [3, 3], 2: None, 5: [4, 4]}


def test_a_cumulative_delta_goes_on_top_of_what_it_replaces(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    first = shop.apply(1)
    shop.writer.write(3, emb({1: [3, 3], 2: None}), replaces_from=1)
    found = shop.apply(3, first.target)
    assert spans(found.target.runs) == [(1, 1), (2, 3)]


def test_a_delta_without_rows_is_a_delta(shop: Shop) -> None:
    shop.writer.write(1)
    found = shop.apply(1)
    assert (found.target.snapshot.delta, spans(found.target.runs)) == (1, [(1, 1)])
    assert rows_of(*found.target.runs) == {}


def test_tables_have_their_aliases(tmp_path: Path) -> None:
    shop = Shop(tmp_path, meaning=ModelMeaning(tables={"item": TableMeaning(alias=("emb", "i"))}))
    for number, name in enumerate(("emb", "item", "i"), 1):
        shop.writer.write(number, emb({number: [number, 0]}, name))
    assert set(rows_of(shop.apply(3).increment)) == {1, 2, 3}


@pytest.mark.parametrize("dtype", [np.float16, np.uint16], ids=["f16", "bf16"])
def test_short_numbers_become_long_ones(shop: Shop, dtype: Any) -> None:
    values = np.array([[1.5, -2.0]], np.float32)
    short = values.astype(dtype) if dtype == np.float16 else (values.view(np.uint32) >> 16)
    shop.writer.write(1, RowsWritten("emb", [1], short.astype(dtype)))
    assert rows_of(shop.apply(1).increment) == {1: [1.5, -2.0]}


def test_unsigned_keys_are_the_signed_ones_of_the_same_bits(shop: Shop) -> None:
    rows = RowsWritten(
        "emb", [2**64 - 1, 3], np.ones((2, 2), np.float32), [2**63], key_dtype=np.uint64
    )
    shop.writer.write(1, rows)
    assert rows_of(shop.apply(1).increment) == {-1: [1, 1], 3: [1, 1], -(2**63): None}


def test_of_a_key_that_is_there_twice_the_last_row_counts(shop: Shop) -> None:
    values = np.array([[1, 1], [2, 2], [3, 3]], np.float32)
    shop.writer.write(1, RowsWritten("emb", [5, 6, 5], values))
    assert rows_of(shop.apply(1).increment) == {5: [3, 3], 6: [2, 2]}


def test_a_whole_table_of_row_numbers_may_come_as_a_weight(shop: Shop) -> None:
    weight = np.arange(10, dtype=np.float32).reshape(5, 2)
    shop.writer.write(1, emb({0: [9, 9]}, "ids"), dense={"ids": weight})
    found = rows_of(shop.apply(1).increment, table=1)
    assert found == {0: [9, 9]} | {n: weight[n].tolist() for n in range(1, 5)}


def test_numbers_that_are_not_finite_may_be_allowed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, deployment=Deployment(deltas=Deltas(non_finite="allow")))
    shop.writer.write(1, emb({1: [np.inf, 1]}))
    assert rows_of(shop.apply(1).increment) == {1: [np.inf, 1]}


@settings(max_examples=40)
@given(st.data())
def test_any_deltas_make_what_they_make_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    changed: list[Rows] = []
    for number in range(1, data.draw(st.integers(1, 6)) + 1):
        own: Rows = {
            key: None if data.draw(st.booleans()) else [number, key]
            for key in data.draw(st.sets(st.integers(0, 5), max_size=3))
        }
        first = data.draw(st.integers(1, number))
        changed.append(own)
        merged: Rows = {}
        for rows in changed[first - 1 :]:
            merged.update(rows)
        shop.writer.write(number, emb(merged), replaces_from=first)
    expected: Rows = {}
    for rows in changed:
        expected.update(rows)
    target, upto = shop.target, len(changed)
    for stop in sorted(data.draw(st.sets(st.integers(1, upto)))):
        target = shop.apply(stop, target).target
    found = shop.apply(upto, target)

    assert found.fault is None
    assert rows_of(*found.target.runs) == expected


# --- what is refused -----------------------------------------------------------------------------


def test_what_deltas_say_of_files_that_nobody_reads_makes_no_number_too_large(shop: Shop) -> None:
    first = shop.writer.write(1, emb({1: [1, 1]}))
    vast = [ListedFile(path=f"{n}", bytes=2**63 - 1, sha256="0" * 64) for n in range(3)]
    document = shop.writer.attempt(1).parent / "delta.json"
    document.write_bytes(encode(msgspec.structs.replace(first, files=(*first.files, *vast))))
    shop.writer.write(2, emb({2: [1, 1]}))

    found = shop.apply(2)

    assert found.target.snapshot.delta == 2
    assert found.bytes == 2**63 - 1


def test_a_gap_is_said_to_be_one(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    shop.writer.write(3, emb({3: [1, 1]}))
    found = shop.apply(3)
    assert found.target.snapshot.delta == 1
    refused(found, 2, "gap", Conflict, "delta 2 is missing")


def test_what_is_good_before_a_bad_delta_is_applied(shop: Shop) -> None:
    for number in range(1, 6):
        shop.writer.write(number, emb({number: [1, 1]}))
    path = shop.writer.attempt(4) / "0000.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    found = shop.apply(5)

    assert (found.target.snapshot.delta, spans(found.target.runs)) == (3, [(1, 3)])
    assert found.newest is not None
    assert found.newest.sequence == 3
    refused(found, 4, "checksum", Corrupt, "0000.safetensors: expected sha256")


def test_a_bad_first_delta_leaves_everything_as_it_was(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}, "nothing"))
    found = shop.apply(1)
    assert found.target is shop.target
    assert found.newest is None
    refused(found, 1, "unknown_table", Conflict, "'nothing'")


def test_a_delta_that_takes_the_number_of_a_bad_one_brings_its_own_rows(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    shop.writer.write(2, emb({2: [2, 2]}), dense={"nothing": np.ones(3, np.float32)})
    refused(shop.apply(2), 2, "unknown_table", Conflict, "'nothing'")
    shutil.rmtree(shop.writer.attempt(2).parent)
    shop.writer.write(2, emb({2: [4, 4]}))

    found = shop.apply(2)

    assert found.fault is None
    assert rows_of(*found.target.runs) == {1: [1, 1], 2: [4, 4]}


def test_a_bad_delta_is_passed_where_a_later_one_holds_what_it_held(shop: Shop) -> None:
    for number in (1, 2):
        shop.writer.write(number, emb({number: [1, 1]}))
    shop.writer.write(3, emb({2: [3, 3], 3: [3, 3]}), replaces_from=2)
    shop.writer.write(4, emb({4: [4, 4]}))
    (shop.writer.attempt(2) / "0000.safetensors").unlink()
    found = shop.apply(4)
    assert found.fault is None
    assert rows_of(*found.target.runs) == {1: [1, 1], 2: [3, 3], 3: [3, 3], 4: [4, 4]}


def test_a_bad_cumulative_delta_is_no_reason_not_to_go_the_long_way(shop: Shop) -> None:
    for number in (1, 2):
        shop.writer.write(number, emb({number: [1, 1]}))
    shop.writer.write(3, emb({1: [3, np.nan]}), replaces_from=1)
    found = shop.apply(3)
    assert found.target.snapshot.delta == 2
    refused(found, 3, "non_finite", Corrupt, "key 1, column 1: found nan")


def test_a_bad_cumulative_delta_is_told_of_also_where_what_it_replaces_is_bad(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    shop.writer.write(2, emb({1: [2, 2]}, "nothing"))
    shop.writer.write(3, emb({3: [3, 3]}))
    shop.writer.write(4, emb({1: [4, np.nan]}), replaces_from=1)

    found = shop.apply(4)

    assert found.target.snapshot.delta == 1
    refused(found, 4, "non_finite", Corrupt, "key 1, column 1: found nan")
    refused(shop.apply(3, found.target), 2, "unknown_table", Conflict, "'nothing'")


def test_of_deltas_that_are_tried_together_the_first_bad_one_is_told(shop: Shop) -> None:
    for number in range(1, 6):
        shop.writer.write(number, emb({number: [1, 1]}))
    shop.writer.write(6, emb({6: [1, 1]}), dense={"nothing": np.ones(3, np.float32)})
    for number in range(7, 10):
        shop.writer.write(number, emb({number: [1, 1]}))

    found = shop.apply(9)

    assert found.target.snapshot.delta == 5
    refused(found, 6, "unknown_table", Conflict, "'nothing'")


def test_a_bad_cumulative_delta_is_told_of_rather_than_the_gap_that_it_bridges(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    shop.writer.write(3, emb({1: [3, np.nan]}), replaces_from=1)
    refused(shop.apply(3), 3, "non_finite", Corrupt, "key 1, column 1: found nan")


def broken_file(change: Callable[[bytes], bytes]) -> Callable[[Shop], None]:
    """Return what publishes delta 1 and breaks its file."""

    def publish(shop: Shop) -> None:
        shop.writer.write(1, emb({1: [1, 1]}))
        path = shop.writer.attempt(1) / "0000.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return publish


def published(*rows: RowsWritten, **told: Any) -> Callable[[Shop], None]:
    """Return what publishes delta 1."""

    def publish(shop: Shop) -> None:
        shop.writer.write(1, *rows, **told)

    return publish


def says(**changes: Any) -> Callable[[Shop], None]:
    """Return what publishes delta 1 and changes words of its delta.json."""

    def publish(shop: Shop) -> None:
        shop.writer.write(1, emb({1: [1, 1]}))
        path = shop.writer.attempt(1).parent / "delta.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return publish


def no_tensors(shop: Shop) -> None:
    """Publish delta 1 with a file that is as its delta.json says, and no safetensors file."""
    data = b"[]" * 20
    listed = {
        "path": "0000.safetensors",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    says(files=[listed])(shop)
    (shop.writer.attempt(1) / "0000.safetensors").write_bytes(data)


def missing(shop: Shop) -> None:
    """Publish delta 1 and lose its file."""
    shop.writer.write(1, emb({1: [1, 1]}))
    (shop.writer.attempt(1) / "0000.safetensors").unlink()


def linked_away(shop: Shop) -> None:
    """Publish delta 1 and link its file out of the folder."""
    missing(shop)
    (shop.writer.attempt(1) / "0000.safetensors").symlink_to("/etc/passwd")


def attempt_linked_away(shop: Shop) -> None:
    """Publish delta 1, and have the folder of its files be a link out of the version."""
    shop.writer.write(1, emb({1: [1, 1]}))
    attempt = shop.writer.attempt(1)
    attempt.rename(shop.root / "elsewhere")
    attempt.symlink_to(shop.root / "elsewhere")


def other_tensors(arrays: dict[str, Any], **declared: Any) -> Callable[[Shop], None]:
    """Return what publishes delta 1 with other tensors than delta.json says."""

    def publish(shop: Shop) -> None:
        real = safetensors_bytes(arrays)

        class Other(RowsWritten):
            @property
            def arrays(self) -> dict[str, Any]:
                return arrays

        shop.writer.write(1, Other(**(vars(emb({1: [1, 1], 9: None})) | declared)))
        assert real

    return publish


ONE = np.ones((1, 2), np.float32)
KEY = np.array([1])

REFUSED: dict[str, tuple[Callable[[Shop], None], str, type[AnabranchError], str]] = {
    "cut short": (broken_file(lambda data: data[:-1]), "truncated", Corrupt, "bytes, found"),
    "too long": (broken_file(lambda data: data + b"x"), "truncated", Corrupt, "bytes, found"),
    "other bytes": (broken_file(lambda data: b"x" + data[1:]), "checksum", Corrupt, "sha256"),
    "no tensors": (
        no_tensors, "invalid", Corrupt, "0000.safetensors: no safetensors file: a header of"
    ),
    "missing": (missing, "truncated", Corrupt, "0000.safetensors: missing"),
    "linked away": (linked_away, "invalid", Corrupt, "leads out of the folder"),
    "attempt linked away": (
        attempt_linked_away, "invalid", Corrupt, "leads out of the folder"
    ),
    "other identity": (
        says(base={"identity": "sha256:" + "00" * 32, "previous": 0}),
        "wrong_base", Conflict, "base.identity: expected sha256:5b5b",
    ),
    "other model": (says(model="n"), "wrong_base", Conflict, "model: expected m, found n"),
    "other version": (says(version=2), "wrong_base", Conflict, "version: expected 1, found 2"),
    "other sequence": (
        says(sequence=2, replaces_from=2), "invalid", Corrupt, "says sequence 2, but lies in"
    ),
    "unknown key": (says(typo=1), "invalid", Corrupt, "typo"),
    "newer format": (says(format=2), "invalid", Unsupported, "format"),
    "unknown table": (published(emb({1: [1, 1]}, "x")), "unknown_table", Conflict, "'x'"),
    "unknown weight": (published(dense={"w": ONE}), "unknown_table", Conflict, "'w'"),
    "other dim": (
        published(RowsWritten("emb", [1], np.ones((1, 3), np.float32))),
        "shape", Conflict, "rows of 3 numbers; expected 2",
    ),
    "not finite": (published(emb({4: [1, np.inf]})), "non_finite", Corrupt, "key 4, column 1"),
    "growth": (published(emb({5: [1, 1]}, "ids")), "shape", Conflict, "key 5; the table has 5"),
    "growth remedy": (published(emb({5: [1, 1]}, "ids")), "shape", Conflict, "the larger table"),
    "negative": (published(emb({-1: [1, 1]}, "ids")), "shape", Conflict, "key -1; the table has"),
    "deleted": (published(emb({1: None}, "ids")), "shape", Conflict, "a delta cannot take any"),
    "weight of keys": (
        published(dense={"emb": ONE}), "shape", Conflict, "send rows with their keys"
    ),
    "other shape": (published(dense={"ids": ONE}), "shape", Conflict, "has shape [1, 2]"),
    "weight of integers": (
        published(dense={"ids": np.ones((5, 2), np.int64)}), "shape", Conflict, "is of I64"
    ),
    "both": (
        published(RowsWritten("emb", [3, 4], np.ones((2, 2), np.float32), [4])),
        "invalid", Corrupt, "key 4 is both changed and deleted",
    ),
    "other tensors": (
        other_tensors({"keys": KEY, "values": ONE, "more": ONE}), "invalid", Corrupt, "found keys"
    ),
    "no values": (other_tensors({"keys": KEY}), "invalid", Corrupt, "expected tensors keys"),
    "other types": (
        other_tensors({"keys": KEY, "values": ONE.astype(np.float64), "deleted": KEY}),
        "invalid", Corrupt, "values F32 [1, 2]; found F64",
    ),
    "fewer rows": (
        other_tensors({"keys": KEY, "values": ONE[:0], "deleted": KEY}),
        "invalid", Corrupt, "found F32 [0, 2]",
    ),
    "no deletes": (
        other_tensors({"keys": KEY, "values": ONE}), "invalid", Corrupt, "1 deleted keys"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_with_its_reason(shop: Shop, name: str) -> None:
    publish, reason, kind, text = REFUSED[name]
    publish(shop)
    found = shop.apply(1)
    assert found.target is shop.target
    refused(found, 1, reason, kind, text)
    assert found.fault is not None
    assert found.fault.error.message.startswith("delta 1: ")


@pytest.mark.parametrize(
    ("row_type", "row", "text"),
    [
        ("f16", [65520, 0], "rows: f16 cannot hold it"),
        ("bf16", [0, 3.4e38], "rows: bf16 cannot hold it"),
        ("int8", [1e6, 0], "rows: int8 cannot hold it"),
        ("int8", [np.nan, 0], "int8 rows are finite"),
    ],
)
def test_numbers_that_rows_cannot_hold_are_refused(
    tmp_path: Path, row_type: Any, row: list[float], text: str
) -> None:
    deployment = Deployment(deltas=Deltas(non_finite="allow" if np.nan in row else "refuse"))
    shop = Shop(tmp_path, StoreShape("emb", 3, row_type=row_type), deployment=deployment)
    shop.writer.write(1, emb({1: [1, 1], 8: row}))
    refused(shop.apply(1), 1, "non_finite", Corrupt, text)


def test_a_base_of_its_own_is_as_good_as_the_one_before(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    shop.writer.write(2, emb({2: [1, 1]}), base=Base(identity=shop.writer.identity, previous=0))
    assert shop.apply(2).fault is None


def test_files_that_no_delta_lists_are_left_alone(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    (shop.writer.attempt(1) / "notes.txt").write_text("hello")
    assert shop.apply(1).fault is None


def test_a_cache_that_cannot_be_written_is_no_fault_of_deltas(shop: Shop, tmp_path: Path) -> None:
    for number in (1, 2):
        shop.writer.write(number, emb({1: [1, 1]}))
    (tmp_path / "cache").write_text("a file where the folder should be")
    found = shop.apply(2)
    assert found.target is shop.target
    refused(found, 2, "unreachable", Unavailable, "cache folder: ")


def test_rows_that_are_gone_cannot_be_changed(shop: Shop) -> None:
    shop.writer.write(1, emb({1: [1, 1]}))
    gone = replace(shop.target, segment=shop.root / "gone.seg")
    with pytest.raises(Unavailable, match="cannot be opened"):
        shop.apply(1, gone)
