"""The log of ranked requests: what its rows say, and that no request waits or fails for it."""

import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.plans import FeaturePlan
from anabranch_runtime.ranking.requests import RankRequest
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_runtime.served import ServedVersion
from anabranch_server.feature_log import FeatureLog, LogResult
from anabranch_server.feature_log.backlog import Backlog
from anabranch_server.feature_log.batches import batches_of, schema_of
from anabranch_server.feature_log.entries import Entry
from anabranch_server.feature_log.sampling import Sampling
from anabranch_testing.doors import door_context
from anabranch_testing.ranked_models import ranked_model, ranked_plan

pq = pytest.importorskip("pyarrow.parquet")

LIMITS = ColumnLimits(1000, 100_000, 1000)
USER = {"country": "at", "age": 20.0}
CANDIDATES = {"item_id": [7, 8, 9], "price": [1.5, 3.5, 2.5], "tags": [[4], [], [1, 2, 3, 4]]}


@dataclass
class Told:
    """Keeps what became of requests."""

    results: list[tuple[str, LogResult, int]] = field(default_factory=list)
    changed: threading.Event = field(default_factory=threading.Event)

    def feature_log(self, model: str, result: LogResult, requests: int) -> None:
        """Keep it."""
        self.results.append((model, result, requests))
        self.changed.set()


@dataclass(frozen=True)
class Served:
    """A version that ranks, and its rules."""

    version: ServedVersion
    rules: RankingRules

    def ranked(
        self, candidates: Mapping[str, object] = CANDIDATES, **how: Any
    ) -> tuple[PreparedRanking, dict[str, NDArray[np.float32]]]:
        """Return a request as doors prepare it, with what the graph gave for it."""
        user, columns = (
            {name: msgspec.json.encode(value) for name, value in sent.items()}
            for sent in (USER, candidates)
        )
        prepared = self.rules.prepare(RankRequest("json", user, columns, **how), LIMITS)
        age, country, price, tags = (
            prepared.arrays[name].astype(np.float32) for name in ("age", "country", "price", "tags")
        )
        outputs = {
            "ctr": age + 10 * country + price + tags[:, 3:],
            "both": np.zeros((prepared.rows, 2), np.float32),
        }
        return prepared, {name: outputs[name] for name in prepared.heads}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "model"
    folder.mkdir()
    plan = ranked_plan(report_bad=True)
    with door_context({"ctr": ranked_model(folder)}, rankings={"ctr": plan}) as context:
        version = context.catalog.resolve("ctr", "")
        assert version.ranking is not None
        yield Served(version, version.ranking)
        del version


@contextmanager
def opened(tmp_path: Path, told: Told | None = None) -> Iterator[FeatureLog]:
    log = FeatureLog(tmp_path / "log", 1.0, 0, told or Told())
    try:
        yield log
    finally:
        assert log.close(30.0)


def offer(log: FeatureLog, served: Served, request_id: str = "r", **request: Any) -> None:
    prepared, outputs = served.ranked(**request)
    log.offer(request_id, served.version, served.rules, prepared, outputs)


def read(tmp_path: Path) -> dict[str, list[Any]]:
    (path,) = (tmp_path / "log" / "ctr" / "42").iterdir()
    columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return columns


def test_a_row_for_each_candidate_says_what_it_was_scored_with(
    tmp_path: Path, served: Served
) -> None:
    told, begun = Told(), time.time()
    with opened(tmp_path, told) as log:
        offer(log, served, "req-1", top_k=2)

    rows = read(tmp_path)

    assert rows["request_id"] == ["req-1"] * 3
    assert rows["model"] == ["ctr"] * 3
    assert (rows["version"], rows["delta"]) == ([42] * 3, [17] * 3)
    assert begun <= rows["time"][0] <= time.time()
    assert rows["position"] == [0, 1, 2]
    # age 20 + 10 * place of the country 2 + price + tags after truncation
    assert rows["score"] == [42.5, 43.5, 45.5]
    assert rows["rank"] == [3, 2, 1]
    assert rows["answered"] == [False, True, True]
    assert rows["bad"] == [None] * 3
    assert rows["output_ctr"] == rows["score"]
    assert rows["output_cvr"] == [None] * 3
    assert rows["feature_age"] == [20.0] * 3
    assert rows["feature_country"] == [2] * 3
    assert rows["feature_item_id"] == [7, 8, 9]
    assert rows["feature_tags"] == [[4], [], [1, 2, 3]]
    assert rows["missed_item_id"] == [False] * 3
    assert told.results == [("ctr", "written", 1)]


def test_features_that_feed_nothing_have_no_column(tmp_path: Path, served: Served) -> None:
    plan, told = served.rules.plan, Told()
    key = FeaturePlan(name="user_id", side="user", type="string", default=("",))
    plan = msgspec.structs.replace(plan, features=(key, *plan.features), routing_key="user_id")
    with opened(tmp_path, told) as log:
        offer(log, replace(served, rules=RankingRules(plan, served.version.outputs)))

    rows = read(tmp_path)

    assert told.results == [("ctr", "written", 1)]
    assert "feature_user_id" not in rows
    assert rows["missed_user_id"] == [False] * 3
    assert rows["feature_item_id"] == [7, 8, 9]


def test_heads_that_were_asked_for_are_logged_for_all_candidates(
    tmp_path: Path, served: Served
) -> None:
    with opened(tmp_path) as log:
        offer(log, served, top_k=1, outputs=("both",))

    assert read(tmp_path)["output_both"] == [[0.0, 0.0]] * 3


def test_a_candidate_at_fault_has_a_reason_and_no_score(tmp_path: Path, served: Served) -> None:
    with opened(tmp_path) as log:
        offer(log, served, candidates={**CANDIDATES, "price": [1.5, "12", 2.5]})

    rows = read(tmp_path)

    assert rows["bad"] == [
        None,
        "feature 'price', candidate 1: expected a number, got \"12\"",
        None,
    ]
    assert rows["score"][1] is rows["rank"][1] is rows["output_ctr"][1] is None
    assert rows["answered"] == [True, False, True]
    assert rows["rank"] == [2, None, 1]


def test_a_score_that_is_no_number_is_logged_as_it_is(tmp_path: Path, served: Served) -> None:
    prepared, outputs = served.ranked()
    outputs["ctr"][1] = np.nan
    with opened(tmp_path) as log:
        log.offer("r", served.version, served.rules, prepared, outputs)

    rows = read(tmp_path)

    assert np.isnan(rows["score"][1])
    assert rows["rank"] == [2, 3, 1]


def test_requests_of_a_version_share_a_file(tmp_path: Path, served: Served) -> None:
    told = Told()
    with opened(tmp_path, told) as log:
        for number in range(5):
            offer(log, served, f"r{number}")

    assert read(tmp_path)["request_id"] == [f"r{n}" for n in range(5) for _ in range(3)]
    assert told.results == [("ctr", "written", 5)]


def test_large_requests_are_written_in_parts(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_server.feature_log.batches._MAX_VALUES", 4)
    with opened(tmp_path) as log:
        offer(log, served)

    rows = read(tmp_path)
    assert rows["position"] == [0, 1, 2]
    assert rows["feature_tags"] == [[4], [], [1, 2, 3]]
    assert rows["feature_country"] == [2] * 3


def test_a_request_without_candidates_leaves_no_trace(tmp_path: Path, served: Served) -> None:
    prepared, outputs = served.ranked()
    nobody = PreparedRanking(prepared.request, 0, {}, (), prepared.counts)
    with opened(tmp_path) as log:
        log.offer("r", served.version, served.rules, nobody, outputs)

    assert not (tmp_path / "log").exists()


def test_a_version_that_is_gone_leaves_misses_unknown(tmp_path: Path, served: Served) -> None:
    prepared, outputs = served.ranked()
    short_lived = replace(served.version)
    entry = Entry.of("r", short_lived, served.rules, prepared, outputs)
    del short_lived

    (batch,) = batches_of(entry, schema_of(entry))

    assert batch.to_pydict()["missed_item_id"] == [None] * 3


def test_what_cannot_be_written_is_counted_and_serving_goes_on(
    tmp_path: Path, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path, told) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # as a disk that is full
        try:
            offer(log, served, "r0")
            assert told.changed.wait(10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        offer(log, served, "r1")

    assert told.results == [("ctr", "failed", 1)] * 2
    assert [vars(record)["event"] for record in caplog.records] == ["feature_log_failed"]
    words = f"the feature log in {tmp_path / 'log'} cannot be written: "
    assert caplog.records[0].getMessage().startswith(words)
    assert not list((tmp_path / "log" / "ctr" / "42").iterdir())


def test_a_file_that_cannot_be_ended_is_lost_with_all_its_requests(
    tmp_path: Path, served: Served
) -> None:
    told = Told()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = FeatureLog(tmp_path / "log", 1.0, 0, told)
    for number in range(3):
        offer(log, served, f"r{number}")
    end = time.monotonic() + 10
    while not list(tmp_path.glob("log/*/*/.*.part")):  # its first bytes are written
        assert time.monotonic() < end
        time.sleep(0.01)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        assert log.close(30.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert sum(requests for _, result, requests in told.results if result == "failed") == 3
    assert {result for _, result, _ in told.results} == {"failed"}
    assert not list((tmp_path / "log" / "ctr" / "42").iterdir())


def test_a_request_that_cannot_be_logged_leaves_the_others(
    tmp_path: Path, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    prepared, outputs = served.ranked()
    with opened(tmp_path, told) as log:
        offer(log, served, "r0")
        log.offer("r1", served.version, served.rules, prepared, {"ctr": outputs["ctr"][:1]})
        offer(log, served, "r2")

    assert sorted(told.results) == [("ctr", "failed", 1), ("ctr", "written", 2)]
    assert read(tmp_path)["request_id"] == ["r0"] * 3 + ["r2"] * 3
    assert [vars(record)["request_id"] for record in caplog.records] == ["r1"]


def test_after_a_pause_it_writes_again(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_server.feature_log.writing._PAUSE_S", 0.0)
    told = Told()
    (tmp_path / "log").touch()  # where the folder should be
    with opened(tmp_path, told) as log:
        offer(log, served, "r0")
        assert told.changed.wait(10)
        (tmp_path / "log").unlink()
        offer(log, served, "r1")

    assert told.results == [("ctr", "failed", 1), ("ctr", "written", 1)]
    assert read(tmp_path)["request_id"] == ["r1"] * 3


def test_offers_after_the_end_are_dropped_and_counted(tmp_path: Path, served: Served) -> None:
    told = Told()
    with opened(tmp_path, told) as log:
        pass
    offer(log, served)

    assert told.results == [("ctr", "dropped", 1)]


def test_a_full_queue_refuses_at_once_and_takes_again_later(served: Served) -> None:
    prepared, outputs = served.ranked()
    entry = Entry.of("r", served.version, served.rules, prepared, outputs)
    backlog = Backlog(max_entries=2, max_bytes=1 << 20)

    assert [backlog.put(entry) for _ in range(3)] == [True, True, False]
    assert backlog.take(0.0) is entry
    assert backlog.put(entry)


def test_the_queue_is_bounded_in_bytes_but_for_one_request(served: Served) -> None:
    prepared, outputs = served.ranked()
    entry = Entry.of("r", served.version, served.rules, prepared, outputs)
    assert entry.bytes > 100
    backlog = Backlog(max_entries=9, max_bytes=entry.bytes - 1)

    assert [backlog.put(entry), backlog.put(entry)] == [True, False]


def test_an_entry_keeps_neither_the_body_nor_the_version(served: Served) -> None:
    prepared, outputs = served.ranked(top_k=2)
    entry = Entry.of("r", served.version, served.rules, prepared, outputs)

    assert entry.prepared.request.user == entry.prepared.request.candidates == {}
    assert (entry.top_k, entry.prepared.request.top_k) == (2, 0)
    assert entry.version() is served.version
    assert served.version not in [getattr(entry, name) for name in Entry.__slots__]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_ids_is_taken_and_always_the_same(share: float) -> None:
    ids = [f"0123456789abcdef-{number:x}" for number in range(4000)]

    taken = [one for one in ids if Sampling(share).takes(one)]

    # Four standard deviations of a binomial share.
    assert abs(len(taken) / 4000 - share) <= 4 * (share * (1 - share) / 4000) ** 0.5
    assert taken == [one for one in ids if Sampling(share).takes(one)]


def test_a_larger_share_takes_what_a_smaller_one_takes() -> None:
    ids = [f"r{number}" for number in range(500)]

    small = {one for one in ids if Sampling(0.1).takes(one)}

    assert small < {one for one in ids if Sampling(0.3).takes(one)}
