"""Plans of any shape against plain loops: combiners, bags, weights, padding, missing keys, sides.

Sums are formed in another order and in f64 here, so pooled numbers may differ by what f32 rounds:
4e-6 of the sum of magnitudes, of numbers as of weights, for bags of 20 at most. Rows that are only
copied are equal. What f16 rounds comes on top: 2^-11 of the number, or 2^-25.
`ANABRANCH_FUZZ_CASES` sets how many plans are tried, a tenth of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Capacity,
    Combiner,
    FeatureArrays,
    FeatureLookup,
    IdType,
    LookupArguments,
    LookupBuffer,
    LookupPlan,
    MissingPolicy,
    RowType,
    Segment,
    SegmentBuilder,
    StoreWriter,
    instruction_sets,
)
from anabranch_testing.mutations import fuzz_cases
from anabranch_wire.errors import InvalidInput

MASK: Final = 2**64 - 1
DIMS: Final = (1, 3, 4, 8, 16, 17, 32, 65, 129)
POOL: Final = (0, MASK, MASK - 1, 2**63, *range(1, 12), 2**40 + 7, 2**31)
VERSIONS: Final = (1, 2, 3)
UNWRITTEN: Final = 7.0

Rows = dict[int, NDArray[np.float32]]


@dataclass(frozen=True)
class Store:
    """A writer that keeps three versions, and what each of them holds, for each table."""

    writer: StoreWriter
    versions: dict[int, list[Rows]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("store")
    rng = np.random.default_rng(5)
    kinds = [(dim, row, keys) for dim in DIMS for row in get_args(RowType) for keys in (0, 1)]
    tables: list[Rows] = []
    with SegmentBuilder(folder, "base.seg") as builder:
        for number, (dim, row_type, is_dense) in enumerate(kinds):
            keys = list(range(8)) if is_dense else [int(key) for key in POOL[:8]]
            table = builder.table(
                f"t{number}",
                dim,
                row_type=row_type,
                keys="dense_id" if is_dense else "hashed",
                rows=8,
            )
            table.add(None if is_dense else np.array(keys, np.uint64), values(rng, 8, dim))
            tables.append(dict.fromkeys(keys, np.zeros(0, np.float32)))
        builder.finish()
    segment = Segment.open(folder / "base.seg")
    writer = StoreWriter.create(segment, [Capacity(16, 32)] * len(kinds))
    held = [list(map(set, tables))]
    for _ in VERSIONS[1:]:
        with writer.begin() as change:
            keys_now = [set(keys) for keys in held[-1]]
            for number, (dim, _, is_dense) in enumerate(kinds):
                picks = rng.choice(8 if is_dense else len(POOL), 4, replace=False)
                keys = [int(key) if is_dense else POOL[key] for key in picks]
                change.upsert(number, np.array(keys, np.uint64), values(rng, 4, dim))
                keys_now[number] |= set(keys)
                if not is_dense:
                    change.erase(number, np.array(keys[:1], np.uint64))
                    keys_now[number].discard(keys[0])
            change.apply()
            held.append(keys_now)
    # What the rows are is another test's affair: here they are as read one by one.
    versions = {
        version: [
            dict(
                zip(
                    sorted(keys),
                    writer.generation.rows(number, np.array(sorted(keys), np.uint64), version)[0],
                    strict=True,
                )
            )
            for number, keys in enumerate(tables_then)
        ]
        for version, tables_then in zip(VERSIONS, held, strict=True)
    }
    return Store(writer, versions)


def values(rng: np.random.Generator, count: int, dim: int) -> NDArray[np.float32]:
    return rng.standard_normal((count, dim), np.float32)


class Refused(Exception):
    """The model would not run this batch."""


@dataclass(frozen=True)
class Feature:
    """A lookup with what it is given: ids and weights of each of its rows."""

    lookup: FeatureLookup
    ids: list[list[float]]
    weights: list[NDArray[np.float32]]


@dataclass
class Pooled:
    """What one row of a lookup comes to, how far off f32 may be, and what was counted."""

    columns: NDArray[np.float64]
    slack: NDArray[np.float64]
    keys: int = 0
    misses: int = 0


def pooled(rows: Rows, base_rows: int, dim: int, feature: Feature, row: int) -> Pooled:
    lookup = feature.lookup
    slots: list[NDArray[np.float64] | None] = []
    result = Pooled(np.zeros(dim), np.zeros(dim))
    for number in feature.ids[row]:
        key = (int(number) + lookup.add) & MASK
        if lookup.padding_key is not None and key == lookup.padding_key & MASK:
            slots.append(None)
            continue
        found = fetched(rows, base_rows, dim, lookup, key)
        result.keys += 1
        result.misses += found is None
        slots.append(fallback(rows, dim, lookup) if found is None else found)
    if lookup.combiner == "none":
        zero = np.zeros(dim)
        padded = [zero if slot is None else slot for slot in slots]
        padded += [zero] * (lookup.max_length - len(slots))
        result.columns = np.concatenate(padded)
        result.slack = np.zeros_like(result.columns)
        return result
    kept = [
        (slot, float(weight))
        for slot, weight in zip(slots, feature.weights[row], strict=True)
        if slot is not None
    ]
    if not kept:
        return result
    if lookup.combiner == "max":
        result.columns = np.max([slot for slot, _ in kept], axis=0)
        return result
    divisor = {
        "sum": 1.0,
        "mean": sum(weight for _, weight in kept),
        "sqrtn": float(np.sqrt(sum(weight * weight for _, weight in kept))),
    }[lookup.combiner]
    if divisor != 0:
        weighted = np.stack([slot * weight for slot, weight in kept])
        result.columns = weighted.sum(axis=0) / divisor
        # Weights of both signs leave a small divisor, of which f32 knows less.
        divided = sum(abs(weight) for _, weight in kept) / abs(divisor)
        off = np.abs(weighted).sum(axis=0) / abs(divisor) + np.abs(result.columns) * divided
        result.slack = 4e-6 * off
    return result


def fetched(
    rows: Rows, base_rows: int, dim: int, lookup: FeatureLookup, key: int
) -> NDArray[np.float64] | None:
    if lookup.missing == "original":
        key = key + base_rows & MASK if key >= 2**63 else key
        if key >= base_rows:
            raise Refused
    row = rows.get(key)
    if row is None and lookup.missing == "error":
        raise Refused
    return None if row is None else row.astype(np.float64)


def fallback(rows: Rows, dim: int, lookup: FeatureLookup) -> NDArray[np.float64]:
    match lookup.missing:
        case "vector":
            return np.array(lookup.missing_row, np.float32).astype(np.float64)
        case "key":
            row = rows.get(lookup.missing_key & MASK)
            return np.zeros(dim) if row is None else row.astype(np.float64)
        case _:
            return np.zeros(dim)


class Draft:
    """Draws plans and batches for them, small ones, the same for the same seed."""

    def __init__(self, seed: int, store: Store) -> None:
        self.rng = np.random.default_rng(seed)
        self.store = store
        self.tables = store.writer.generation.tables
        self.rows = int(self.rng.integers(1, 6))
        self.users = int(self.rng.integers(1, 4))
        self.user_index = self.rng.integers(0, self.users, self.rows)
        self.features: list[Feature] = []
        self.buffers: list[LookupBuffer] = []

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def plans(self) -> list[LookupPlan]:
        """The same plan for every instruction set of this machine."""
        columns = [int(self.rng.integers(0, 3)) for _ in range(self.pick((1, 1, 2)))]
        sides = [self.pick(("row", "row", "user")) for _ in columns]
        for number in range(int(self.rng.integers(1, 8))):
            buffer = self.pick(range(len(columns)))
            lookup = self.lookup(f"f{number}", buffer, columns[buffer], sides[buffer])
            dim = self.tables[lookup.table].dim
            width = dim * (lookup.max_length if lookup.combiner == "none" else 1)
            columns[buffer] += width + int(self.rng.integers(0, 3))
            self.features.append(self.fill(lookup))
        self.buffers = [
            LookupBuffer(columns=max(1, width), type=self.pick(("f32", "f16")), side=side)
            for width, side in zip(columns, sides, strict=True)
        ]
        lookups = [feature.lookup for feature in self.features]
        generation = self.store.writer.generation
        return [
            LookupPlan(generation, lookups, self.buffers, isa=isa) for isa in instruction_sets()
        ]

    def lookup(self, name: str, buffer: int, column: int, buffer_side: str) -> FeatureLookup:
        table = self.pick(range(len(self.tables)))
        is_dense = self.tables[table].keys == "dense_id"
        combiner: Combiner = self.pick(get_args(Combiner))
        policies: list[MissingPolicy] = ["zeros", "vector", "key", "error"]
        return FeatureLookup(
            feature=name,
            table=table,
            side="user" if buffer_side == "user" else self.pick(("row", "row", "user")),
            id_type=self.pick(get_args(IdType)),
            add=self.pick((0, 0, 0, 3, -2, 2**62)),
            combiner=combiner,
            bag=self.pick(("fixed", "lengths", "offsets")),
            bag_type=self.pick(("int32", "int64")),
            max_length=self.pick((1, 1, 2, 5, 20)),
            weighted=combiner not in ("none", "max") and self.pick((True, False)),
            padding_key=self.pick((None, 0, -1, 3)),
            missing=self.pick([*policies, "original"] if is_dense else policies),
            missing_row=(),
            missing_key=self.pick((0, 1, -1, 2**40 + 7)),
            buffer=buffer,
            column=column,
        )

    def fill(self, lookup: FeatureLookup) -> Feature:
        dim = self.tables[lookup.table].dim
        if lookup.missing == "vector":
            lookup = with_row(lookup, self.missing_row(dim))
        count = self.rows if lookup.side == "row" else self.users
        lengths = self.rng.integers(0, lookup.max_length + 1, count)
        if lookup.bag == "fixed":
            lengths[:] = lookup.max_length
        ids = [[self.number(lookup) for _ in range(length)] for length in lengths]
        weights = [
            self.rng.standard_normal(length, np.float32)
            if lookup.weighted
            else np.ones(length, np.float32)
            for length in lengths
        ]
        return Feature(lookup, ids, weights)

    def missing_row(self, dim: int) -> tuple[float, ...]:
        """Numbers that every row type holds exactly: such a row is kept as the table's are."""
        numbers = self.rng.integers(-128, 128, dim) / 64
        numbers[:2] = (-2, 127 / 64)[:dim]  # the ends of what int8 rows of that scale hold
        return tuple(float(number) for number in numbers)

    def number(self, lookup: FeatureLookup) -> float:
        """An id that its type can hold, most often of a key of the table."""
        rows = self.store.versions[1][lookup.table]
        is_strict = lookup.missing in ("error", "original")
        keys = sorted(rows) if is_strict or self.rng.random() < 0.6 else list(POOL)
        key: int = self.pick(keys)
        if lookup.missing == "original" and self.rng.random() < 0.3:
            key -= 8
        signed = ((key - lookup.add) + 2**63 & MASK) - 2**63
        match lookup.id_type:
            case "int64":
                return signed
            case "int32":
                return signed if abs(signed) < 2**31 else int(self.rng.integers(-3, 9))
            case _:
                exact = signed if abs(signed) < 2**20 else int(self.rng.integers(-3, 9))
                return exact + (0.25 if exact >= 0 else -0.25)


def with_row(lookup: FeatureLookup, row: tuple[float, ...]) -> FeatureLookup:
    fields = {name: getattr(lookup, name) for name in FeatureLookup.__slots__}
    return FeatureLookup(**{**fields, "missing_row": row})


def arrays_of(feature: Feature, rng: np.random.Generator) -> FeatureArrays:
    lookup = feature.lookup
    flat = np.array([number for row in feature.ids for number in row]).astype(lookup.id_type)
    weights = np.concatenate(feature.weights) if lookup.weighted else None
    lengths = [len(row) for row in feature.ids]
    if lookup.bag == "lengths":
        return FeatureArrays(flat, np.array(lengths, lookup.bag_type), weights)
    if lookup.bag == "offsets":
        offsets = np.cumsum([0, *lengths]).astype(lookup.bag_type)
        return FeatureArrays(flat, offsets[: len(offsets) - int(rng.integers(2))], weights)
    # A slice of the columns of a wider array.
    packed = np.zeros((len(lengths), lookup.max_length + 3), lookup.id_type)
    packed[:, 2:-1] = flat.reshape(len(lengths), lookup.max_length)
    return FeatureArrays(packed[:, 2:-1], None, weights)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_any_plan_answers_as_plain_loops_do_by_every_instruction_set(
    store: Store, part: int
) -> None:
    cases = max(4, fuzz_cases() // 10) // 4
    refused = 0
    for seed in range(part * cases, (part + 1) * cases):
        refused += not is_answered(store, seed)
    assert refused < 0.6 * cases


def is_answered(store: Store, seed: int) -> bool:
    draft = Draft(seed, store)
    plans = draft.plans()
    version = draft.pick(VERSIONS)
    blank = [
        np.full(
            (draft.rows if buffer.side == "row" else draft.users, buffer.columns),
            UNWRITTEN,
            np.float32 if buffer.type == "f32" else np.float16,
        )
        for buffer in draft.buffers
    ]
    expected = [np.full(output.shape, UNWRITTEN) for output in blank]
    slack = [np.zeros(output.shape) for output in blank]
    keys, misses = [], []
    try:
        for feature in draft.features:
            counted = write(feature, store.versions[version], draft, expected, slack)
            keys.append(counted[0])
            misses.append(counted[1])
    except Refused:
        is_refused = True
    else:
        is_refused = False
    features = [arrays_of(feature, draft.rng) for feature in draft.features]
    first: list[bytes] = []
    for plan in plans:
        where = f"seed {seed}, {plan.isa}"
        outputs = [output.copy() for output in blank]
        arguments = plan.arguments(features, outputs)
        if is_refused:
            with pytest.raises(InvalidInput, match="feature 'f"):
                run(plan, arguments, version, draft)
            continue
        run(plan, arguments, version, draft)

        assert list(arguments.keys) == keys, where
        assert list(arguments.misses) == misses, where
        found = [output.tobytes() for output in outputs]
        first = first or found
        assert found == first, f"{where}: other bits than {plans[0].isa}"
        for number, output in enumerate(outputs):
            off = np.abs(output.astype(np.float64) - expected[number])
            allowed = slack[number]
            if output.dtype == np.float16:
                allowed = allowed + np.maximum(np.abs(expected[number]) * 2.0**-11, 2.0**-25)
            assert (off <= allowed).all(), f"{where}, buffer {number}"
    return not is_refused


def run(plan: LookupPlan, arguments: LookupArguments, version: int, draft: Draft) -> None:
    plan.run(arguments, version, draft.rows, users=draft.users, user_index=draft.user_index)


def write(
    feature: Feature,
    tables: list[Rows],
    draft: Draft,
    expected: list[NDArray[np.float64]],
    slack: list[NDArray[np.float64]],
) -> tuple[int, int]:
    """Write a lookup's columns, and return keys and misses."""
    lookup = feature.lookup
    table = draft.tables[lookup.table]
    each = [
        pooled(tables[lookup.table], table.rows, table.dim, feature, row)
        for row in range(len(feature.ids))
    ]
    is_spread = lookup.side == "user" and draft.buffers[lookup.buffer].side == "row"
    places = list(draft.user_index) if is_spread else range(len(each))
    for row, place in enumerate(places):
        columns = slice(lookup.column, lookup.column + len(each[place].columns))
        expected[lookup.buffer][row, columns] = each[place].columns
        slack[lookup.buffer][row, columns] = each[place].slack
    return sum(one.keys for one in each), sum(one.misses for one in each)
