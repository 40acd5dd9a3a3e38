import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch_runtime.counters import CountersPage, CountersReader
from anabranch_runtime.ranking.feature_program import COUNTS as COUNT_NAMES
from anabranch_server.metrics import RequestCounters, create_page, exposition
from anabranch_testing.catalogs import OwnCatalog

FEATURES = ("country", "tags")
COUNTS = np.array([[1, 0, 1, 0, 0], [7, 2, 0, 3, 4]], np.int64)

Labels = tuple[tuple[str, str], ...]


@pytest.fixture
def page() -> CountersPage:
    return create_page()


@pytest.fixture
def counters(page: CountersPage) -> RequestCounters:
    return RequestCounters(page, OwnCatalog())


def values(page: CountersPage) -> dict[tuple[str, Labels], float]:
    text = exposition(CountersReader(page.fd).read(), ()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def at(feature: str, model: str = "ctr") -> Labels:
    return (("feature", feature), ("model", model))


def test_what_happened_to_values_is_counted_by_feature(
    page: CountersPage, counters: RequestCounters
) -> None:
    counters.ranked("ctr", FEATURES, COUNTS, 5)
    counters.ranked("ctr", FEATURES, COUNTS, 0)

    found = values(page)
    assert found["anabranch_rank_nan_scores_total", (("model", "ctr"),)] == 5
    for count, country, tags in (
        ("values", 2, 14),
        ("defaulted", 0, 4),
        ("out_of_vocabulary", 2, 0),
        ("truncated", 0, 6),
        ("out_of_range", 0, 8),
    ):
        assert found[f"anabranch_feature_{count}_total", at("country")] == country
        assert found[f"anabranch_feature_{count}_total", at("tags")] == tags


def test_versions_may_have_other_features(page: CountersPage, counters: RequestCounters) -> None:
    counters.ranked("ctr", FEATURES, COUNTS, 0)
    counters.ranked("ctr", ("tags",), COUNTS[1:], 0)

    found = values(page)
    assert found["anabranch_feature_values_total", at("tags")] == 14
    assert found["anabranch_feature_values_total", at("country")] == 1


def test_series_go_with_their_model_and_may_come_again(
    page: CountersPage, counters: RequestCounters
) -> None:
    counters.ranked("ctr", FEATURES, COUNTS, 1)
    counters.ranked("other", FEATURES, COUNTS, 1)

    counters.retire("ctr", 42)
    assert ("anabranch_feature_values_total", at("tags")) in values(page)
    counters.retire("ctr", None)
    found = values(page)
    counters.ranked("ctr", FEATURES, COUNTS, 1)

    assert ("anabranch_feature_values_total", at("tags")) not in found
    assert ("anabranch_rank_nan_scores_total", (("model", "ctr"),)) not in found
    assert found["anabranch_feature_values_total", at("tags", "other")] == 7
    assert values(page)["anabranch_feature_values_total", at("tags")] == 7


def test_any_number_of_features_is_counted(page: CountersPage, counters: RequestCounters) -> None:
    features = tuple(f"f{number}" for number in range(40))
    counts = np.arange(200, dtype=np.int64).reshape(40, 5)

    counters.ranked("ctr", features, counts, 3)

    found = values(page)
    assert found["anabranch_rank_nan_scores_total", (("model", "ctr"),)] == 3
    for number, feature in enumerate(features):
        for column, count in enumerate(COUNT_NAMES):
            assert found[f"anabranch_feature_{count}_total", at(feature)] == 5 * number + column


def test_requests_of_the_feature_log_are_counted_until_their_model_is_gone(
    page: CountersPage, counters: RequestCounters
) -> None:
    counters.feature_log("ctr", "written", 3)
    counters.feature_log("ctr", "written", 2)
    counters.feature_log("ctr", "dropped", 1)

    name = "anabranch_feature_log_requests_total"
    assert values(page)[name, (("model", "ctr"), ("result", "written"))] == 5
    assert values(page)[name, (("model", "ctr"), ("result", "dropped"))] == 1

    counters.retire("ctr", None)
    assert not [key for key in values(page) if key[0] == name]
