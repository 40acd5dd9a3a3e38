import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_model_store.serving_yaml import VersionPolicy
from anabranch_model_store.version_choice import Selection, default_version, select_versions

LATEST = VersionPolicy(latest=1)


@pytest.mark.parametrize(
    ("policy", "labels", "selection"),
    [
        (LATEST, {}, Selection((43,), ())),
        (VersionPolicy(latest=2), {}, Selection((43, 42), ())),
        (VersionPolicy(latest=9), {}, Selection((43, 42, 7), ())),
        (VersionPolicy(specific=(7, 42)), {}, Selection((42, 7), ())),
        (VersionPolicy(specific=(7, 8)), {}, Selection((7,), (8,))),
        ("all", {}, Selection((43, 42, 7), ())),
        (LATEST, {"stable": 7}, Selection((43, 7), ())),
        (LATEST, {"stable": 43, "canary": 44}, Selection((43,), (44,))),
    ],
)
def test_the_policy_and_labels_say_what_is_loaded(
    policy: VersionPolicy, labels: dict[str, int], selection: Selection
) -> None:
    assert select_versions((42, 7, 43), policy, labels) == selection


def test_without_a_broken_version_the_latest_is_an_older_one() -> None:
    assert select_versions((7, 42), LATEST, {}).load == (42,)
    assert select_versions((), LATEST, {}) == Selection((), ())


@given(
    st.sets(st.integers(1, 20)),
    st.one_of(
        st.just("all"),
        st.builds(lambda n: VersionPolicy(latest=n), st.integers(1, 5)),
        st.builds(
            lambda s: VersionPolicy(specific=tuple(s)), st.sets(st.integers(1, 20), min_size=1)
        ),
    ),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 20)),
)
def test_only_what_is_there_is_loaded_and_newest_first(
    available: set[int], policy: VersionPolicy, labels: dict[str, int]
) -> None:
    selection = select_versions(available, policy, labels)
    assert set(selection.load) <= available
    assert list(selection.load) == sorted(set(selection.load), reverse=True)
    assert not available.intersection(selection.missing)
    assert set(labels.values()) <= {*selection.load, *selection.missing}


def test_the_default_is_the_newest_or_what_a_label_says() -> None:
    assert default_version((7, 43, 42), {}, None) == 43
    assert default_version((), {}, None) is None
    assert default_version((7, 43), {"stable": 7}, "stable") == 7
    assert default_version((7, 43), {"stable": 42}, "stable") is None
    assert default_version((7, 43), {}, "stable") is None
