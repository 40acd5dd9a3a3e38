"""Integers and names that native code has no place for are refused as input, not as types."""

from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.store import (
    Capacity,
    FeatureLookup,
    LookupBuffer,
    LookupPlan,
    Segment,
    SegmentBuilder,
    StoreWriter,
)
from anabranch_wire.errors import InvalidInput

KEYS = np.array([1, 2], np.uint64)
VALUES = np.ones((2, 4), np.float32)
HALVES = np.ones(2, np.float16)


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    with SegmentBuilder(tmp_path, "rows") as builder:
        builder.table("a", 4, row_type="int8", rows=2).add(KEYS, VALUES)
        builder.finish()
    return StoreWriter.create(Segment.open(tmp_path / "rows"), [Capacity(8, 8)])


@pytest.mark.parametrize("dim", [-1, 0, 2**32, 2**64])
def test_dims_that_cannot_be_are_refused(tmp_path: Path, dim: int) -> None:
    with SegmentBuilder(tmp_path, "rows") as builder, pytest.raises(InvalidInput, match="dim"):
        builder.table("a", dim, rows=1)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_rows_and_model_versions_that_cannot_be_are_refused(tmp_path: Path, number: int) -> None:
    with SegmentBuilder(tmp_path, "rows") as builder, pytest.raises(InvalidInput, match="rows"):
        builder.table("a", 4, rows=number)
    with pytest.raises(InvalidInput, match="model_version"):
        SegmentBuilder(tmp_path, "rows", model_version=number)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path, "rows") as builder, pytest.raises(InvalidInput, match="udc80"):
        builder.table("\udc80", 4, rows=1)


@pytest.mark.parametrize("table", [-1, 1, 2**64])
def test_tables_that_are_not_there_are_refused(writer: StoreWriter, table: int) -> None:
    bits = np.zeros((2, 4), np.uint16)
    for use in (
        lambda: writer.stats(table),
        lambda: writer.generation.rows(table, KEYS, 1),
        lambda: writer.generation.segment.probes(table),
        lambda: writer.begin().upsert(table, KEYS, VALUES),
        lambda: writer.begin().upsert_bf16(table, KEYS, bits),
        lambda: writer.begin().upsert_int8(table, KEYS, VALUES.astype(np.int8), HALVES, HALVES),
        lambda: writer.begin().erase(table, KEYS),
    ):
        with pytest.raises(InvalidInput, match=f"no table {table}"):
            use()


@pytest.mark.parametrize("version", [-1, 0, 2**31, 2**32 - 1, 2**32])
def test_versions_that_cannot_be_are_refused(writer: StoreWriter, version: int) -> None:
    segment = writer.generation.segment
    for use in (
        lambda: writer.generation.rows(0, KEYS, version),
        lambda: writer.restore(version),
        lambda: StoreWriter.create(segment, [Capacity(8, 8)], version=version),
    ):
        with pytest.raises(InvalidInput, match="version"):
            use()


@pytest.mark.parametrize("floor", [-1, 2**32])
def test_floors_that_cannot_be_are_refused(writer: StoreWriter, floor: int) -> None:
    with pytest.raises(InvalidInput, match="floor"):
        writer.reclaim(floor)


@pytest.mark.parametrize("key", [-(2**63) - 1, 2**64])
def test_keys_of_more_than_64_bits_are_refused(writer: StoreWriter, key: int) -> None:
    for lookup in (
        FeatureLookup(feature="f", table=0, padding_key=key),
        FeatureLookup(feature="f", table=0, missing="key", missing_key=key),
    ):
        with pytest.raises(InvalidInput, match="feature 'f'"):
            LookupPlan(writer.generation, [lookup], [LookupBuffer(columns=4)])
