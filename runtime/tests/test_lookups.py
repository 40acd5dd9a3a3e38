"""Lookups inside a session group, against plain Python: merged, cut, padded, refused, switched."""

import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime import lookup_staging
from anabranch_runtime.executor_lookups import LookupCount
from anabranch_runtime.models import RowLayout
from anabranch_runtime.requests import ReplySink, ScoreRequest, Ticket
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings
from anabranch_runtime.store import StoreWriter
from anabranch_testing.gated import GatedBackend
from anabranch_testing.groups import Collector, Counts, MakeGroup, until_asleep
from anabranch_testing.looked_up import (
    CITIES,
    Asked,
    add_to_rows,
    key_of,
    looked_up_model,
    open_store,
    view_of,
    without,
)
from anabranch_wire.errors import InvalidInput
from anabranch_wire.snapshots import Snapshot


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return open_store(tmp_path / "store")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


def load(
    group: SessionGroup,
    folder: Path,
    view: StoreView,
    rows: RowLayout | None = None,
    version: int = 1,
    example: Asked | None = None,
) -> ServedVersion:
    asked = example or Asked.random(np.random.default_rng(1), 5)
    return group.load(
        Snapshot("m", version),
        looked_up_model(folder, rows),
        [asked.named()],
        warm_rounds=1,
        store=view,
    )


def ticket_of(served: ServedVersion, sink: ReplySink, asked: Asked, form: int = 0) -> Ticket:
    inputs, rows = served.rules.order(asked.named(form))
    return Ticket(ScoreRequest(inputs, rows, (), time.monotonic() + 30), served, sink)


def check(ticket: Ticket, asked: Asked, add: float = 0.0) -> None:
    """Compare an answer; all numbers in it are exact."""
    assert ticket.error is None
    assert ticket.outputs is not None
    np.testing.assert_array_equal(ticket.outputs[0], asked.answer(add))


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize(("rows", "one_user"), [(0, False), (1, False), (6, False), (6, True)])
def test_a_request_alone_is_looked_up(
    make_group: MakeGroup,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    form: int,
    rows: int,
    one_user: bool,
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of(writer))
    sink = Collector()
    asked = Asked.random(rng, rows, one_user=one_user)

    group.submit(ticket_of(served, sink, asked, form))
    (done,) = sink.wait(1)

    check(done, asked)
    assert done.lookup_s > 0


def test_requests_that_met_are_answered_as_if_alone(
    make_group: MakeGroup,
    backend: GatedBackend,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group(batching=BatchSettings(max_rows=64, split_rows=0))
    served = load(group, tmp_path, view_of(writer))
    for _ in range(5):
        sink = Collector()
        first = Asked.random(rng, 1)
        others = [
            Asked.random(rng, rows, one_user=rows > 0 and bool(rng.integers(2)))
            for rows in rng.integers(0, 9, 7).tolist()
        ]
        backend.hold()
        group.submit(ticket_of(served, sink, first))
        assert backend.entered.acquire(timeout=10)
        tickets = [ticket_of(served, sink, asked, int(rng.integers(4))) for asked in others]
        for ticket in tickets:
            group.submit(ticket)
        backend.gate.set()
        sink.wait(8)

        assert counts.batches[-1][2] == 7
        for ticket, asked in zip(tickets, others, strict=True):
            check(ticket, asked)


@pytest.mark.parametrize("one_user", [False, True])
def test_a_request_is_cut_with_its_features(
    make_group: MakeGroup,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    one_user: bool,
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, split_rows=5))
    served = load(group, tmp_path, view_of(writer))
    sink = Collector()
    asked = Asked.random(rng, 17, one_user=one_user)
    until_asleep(group)

    group.submit(ticket_of(served, sink, asked))
    (done,) = sink.wait(1)

    check(done, asked)
    assert sorted(rows for _, rows, _ in counts.batches) == [5, 6, 6]
    assert done.lookup_s > 0


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_fill_a_batch_change_no_answer(
    make_group: MakeGroup,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    rows: int,
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of(writer), RowLayout(True, 4, (0, 0, 0), (0,)))
    sink = Collector()
    asked = Asked.random(rng, rows)

    group.submit(ticket_of(served, sink, asked))
    (done,) = sink.wait(1)

    check(done, asked)


def test_company_needs_no_key_that_a_delta_may_take_away(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    layout = RowLayout(True, 2, (0, 0, 0), (0,), splittable=False)
    group = make_group()
    example = Asked.random(rng, 2)
    served = load(group, tmp_path, view_of(writer), layout, example=example)
    assert served.company_rows == 2
    with writer.begin() as change:
        change.erase(CITIES, np.array([key_of(number) for number in example.city]))
        change.apply()
    later = group.with_rows(served, view_of(writer))
    cities = [number for number in range(10) if number not in example.city]
    for rows in (0, 1, 5):
        sink = Collector()
        asked = Asked.random(rng, rows)
        asked = Asked(
            asked.x, cities[:rows], asked.tags, asked.weights,
            [(cities[0], cities[1])] * rows, asked.clicks,
        )  # fmt: skip

        group.submit(ticket_of(later, sink, asked))
        (done,) = sink.wait(1)

        check(done, asked)


def test_rows_that_depend_on_each_other_are_looked_up_too(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of(writer), RowLayout(False, 1, (0, 0, 0), (0,)))
    sink = Collector()
    asked = Asked.random(rng, 6, one_user=True)

    group.submit(ticket_of(served, sink, asked))
    (done,) = sink.wait(1)

    check(done, asked)


# --- missing keys --------------------------------------------------------------------------------


def test_a_missing_key_fails_only_its_own_request(
    make_group: MakeGroup,
    backend: GatedBackend,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of(writer))
    sink = Collector()
    asked = [Asked.random(rng, 3) for _ in range(5)]
    asked[2] = without(asked[2], 1)
    backend.hold()
    group.submit(ticket_of(served, sink, Asked.random(rng, 1)))
    assert backend.entered.acquire(timeout=10)

    tickets = [ticket_of(served, sink, one) for one in asked]
    for ticket in tickets:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(6)

    error = tickets[2].error
    assert isinstance(error, InvalidInput)
    assert "city" in error.message
    assert "row 1" in error.message
    assert str(key_of(107)) in error.message
    for index in (0, 1, 3, 4):
        check(tickets[index], asked[index])


def test_an_example_with_a_missing_key_refuses_the_version(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()

    with pytest.raises(InvalidInput, match="city"):
        load(group, tmp_path, view_of(writer), example=without(Asked.random(rng, 2), 0))


# --- versions of the store -----------------------------------------------------------------------


def test_versions_with_other_rows_never_meet_in_a_batch(
    make_group: MakeGroup,
    backend: GatedBackend,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group(2, BatchSettings(max_rows=64, split_rows=0))
    versions = [load(group, tmp_path, view_of(writer))]
    for add in (1000.0, 2000.0):
        versions.append(group.with_rows(versions[0], add_to_rows(writer, add)))
    sink = Collector()
    backend.hold()
    for _ in range(2):
        group.submit(ticket_of(versions[0], sink, Asked.random(rng, 1)))
        assert backend.entered.acquire(timeout=10)

    asked = [Asked.random(rng, int(rows)) for rows in rng.integers(1, 4, 30)]
    picks = rng.integers(0, 3, len(asked)).tolist()
    tickets = [ticket_of(versions[pick], sink, one) for pick, one in zip(picks, asked, strict=True)]
    for ticket in tickets:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(32)

    for ticket, pick, one in zip(tickets, picks, asked, strict=True):
        # A tag without a row is not added to: only rows are.
        check(ticket, one, 1000.0 * pick)
    assert max(requests for _, _, requests in counts.batches) > 1


def test_a_version_of_another_generation_is_read_on_the_same_engine(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    old = load(group, tmp_path, view_of(writer))
    other = open_store(tmp_path / "other")
    new = group.with_rows(old, add_to_rows(other, 500.0), Snapshot("m", 1, 7))
    assert new.snapshot == Snapshot("m", 1, 7)
    asked = Asked.random(rng, 3)
    for served, add in ((old, 0.0), (new, 500.0), (old, 0.0)):
        sink = Collector()
        group.submit(ticket_of(served, sink, asked))
        check(sink.wait(1)[0], asked, add)


def test_the_engine_is_freed_with_the_last_version_on_it(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    old: ServedVersion | None = load(group, tmp_path, view_of(writer))
    assert old is not None
    new: ServedVersion | None = group.with_rows(old, add_to_rows(writer, 1.0))
    assert new is not None
    del old
    assert group.free_unused() == 0
    sink = Collector()
    asked = Asked.random(rng, 2)
    group.submit(ticket_of(new, sink, asked))
    check(sink.wait(1)[0], asked, 1.0)
    until_asleep(group)

    sink.tickets.clear()
    new = None

    assert group.free_unused() == 1
    assert sum(count.keys for count in group.lookup_counts().values()) > 0


def test_a_store_is_let_go_with_the_last_version_that_reads_it(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    old = load(group, tmp_path, view_of(writer))
    assert old.source is not None
    plan = weakref.ref(old.source.plan)
    sink = Collector()
    group.submit(ticket_of(old, sink, Asked.random(rng, 2)))
    sink.wait(1)
    until_asleep(group)
    counted = group.lookup_counts()
    new = group.with_rows(old, view_of(open_store(tmp_path / "other")))

    del old
    sink.tickets.clear()
    assert group.free_unused() == 0

    assert plan() is None
    assert group.lookup_counts() == counted
    asked = Asked.random(rng, 2)
    group.submit(ticket_of(new, sink, asked))
    check(sink.wait(1)[0], asked)


def test_a_model_with_lookups_needs_a_store(make_group: MakeGroup, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a store"):
        make_group().load(Snapshot("m", 1), looked_up_model(tmp_path), [])


# --- memory and counts ---------------------------------------------------------------------------


@pytest.mark.parametrize(("joined", "kept"), [(2**16, 20), (0, 20), (0, 2**21), (100, 2**21)])
def test_few_and_many_features_are_looked_up_whatever_memory_is_kept(
    make_group: MakeGroup,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    joined: int,
    kept: int,
) -> None:
    monkeypatch.setattr(lookup_staging, "_JOINED_NUMBERS", joined)
    monkeypatch.setattr(lookup_staging, "_KEPT_NUMBERS", kept)
    monkeypatch.setattr(lookup_staging, "_BOUND_BYTES", 200)
    group = make_group()
    served = load(group, tmp_path, view_of(writer))
    for rows in (1, 40, 2, 41, 3):
        sink = Collector()
        asked = Asked.random(rng, rows)
        group.submit(ticket_of(served, sink, asked))
        check(sink.wait(1)[0], asked)

    assert group.lookup_counts()["city", "cities"] == LookupCount(87, 0)


def test_keys_and_misses_are_counted_by_feature_and_table(
    make_group: MakeGroup, backend: GatedBackend, writer: StoreWriter, tmp_path: Path
) -> None:
    group = make_group(2)
    served = load(group, tmp_path, view_of(writer))
    asked = Asked([1, 2], [3, 4], [[5, 500], [6]], [[1, 1], [1]], [(1, 2), (3, 4)], [[7, 8, 9]])
    sink = Collector()
    for sent in range(3):
        group.submit(ticket_of(served, sink, asked))
        sink.wait(sent + 1)
    before = group.lookup_counts()
    backend.fault = SystemExit("the thread dies")
    group.submit(ticket_of(served, sink, asked))
    sink.wait(4)
    backend.fault = None
    group.submit(ticket_of(served, sink, asked))
    sink.wait(5)

    assert before == {
        ("city", "cities"): LookupCount(6, 0),
        ("tags", "tags"): LookupCount(9, 3),
        ("pair", "cities"): LookupCount(12, 0),
        ("clicks", "tags"): LookupCount(9, 0),
    }
    assert group.lookup_counts()["tags", "tags"] == LookupCount(15, 5)


def test_lookups_are_written_down_as_a_stage(
    make_group: MakeGroup,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of(writer))
    sink = Collector()
    counts.spans.begin()
    group.submit(ticket_of(served, sink, Asked.random(rng, 2)))
    sink.wait(1)
    until_asleep(group)

    spans = {span.name: span for span in counts.spans.end().spans}

    assert spans["stage"].begin <= spans["lookup"].begin
    assert spans["lookup"].end <= spans["stage"].end <= spans["run"].end


def test_a_version_goes_on_with_its_rows_under_another_name(
    make_group: MakeGroup, writer: StoreWriter, tmp_path: Path
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of(writer))

    later = group.with_rows(served, None, Snapshot("m", 1, 8), Freshness(80))

    assert (later.snapshot, later.freshness) == (Snapshot("m", 1, 8), Freshness(80))
    assert later.source is served.source
    assert later.token == served.token
