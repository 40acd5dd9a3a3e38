from dataclasses import replace

import pytest

from anabranch_model_store.serving_yaml import Deployment, Traffic, VersionPolicy
from anabranch_server.processes.plans import RowPlan, VersionPlan
from anabranch_server.supervisor.desired import (
    Desired,
    Facts,
    Intent,
    Loaded,
    Present,
    desired,
    namers,
)
from anabranch_server.supervisor.holds import Hold


def loaded(number: int, event_time: float | None = None, fingerprint: str = "a") -> Loaded:
    plan = VersionPlan(
        "m", number, 0, f"sha256:{number}", "p", (), (), RowPlan(True, 1, (), (), "", True), (), "",
        (), 5, 100, event_time=event_time,
    )  # fmt: skip
    return Loaded(plan, fingerprint)


def facts(there: str = "", memory: str = "", **changes: object) -> Facts:
    """Versions that are there and in memory; what is in memory is served, the newest by default."""
    numbers = tuple(int(n) for n in memory.split())
    told = Facts(
        present=Present({int(n): "a" for n in there.split()}),
        deployment=Deployment(),
        loaded={n: loaded(n) for n in numbers},
        served=numbers,
        default=max(numbers, default=None),
    )
    return replace(told, **changes)  # type: ignore[arg-type]  # of many types


def deployment(**keys: object) -> Deployment:
    return Deployment(**keys)  # type: ignore[arg-type]  # of many types


# --- policy -----------------------------------------------------------------------------------


def test_the_newest_version_is_loaded_then_served_by_default() -> None:
    assert desired(facts("1 2 3")).load == (3,)
    wanted = desired(facts("1 2 3", "3"))
    assert wanted == Desired(served=(3,), default=3)


def test_latest_n_all_and_specific_ones() -> None:
    two = deployment(versions=VersionPolicy(latest=2))
    assert desired(facts("1 2 3", deployment=two)).load == (3, 2)
    assert desired(facts("1 2 3", deployment=deployment(versions="all"))).load == (3, 2, 1)
    some = deployment(versions=VersionPolicy(specific=(1, 7)))
    wanted = desired(facts("1 2 3", deployment=some))
    assert (wanted.load, wanted.missing) == ((1,), (7,))


def test_an_empty_repository_serves_nothing_and_keeps_readiness_back() -> None:
    assert desired(facts()) == Desired()
    assert not desired(facts(deployment=deployment(required=False))).required


def test_broken_versions_make_room_for_older_ones_until_their_files_change() -> None:
    assert desired(facts("1 2 3", broken={3: "a"})).load == (2,)
    assert desired(facts("1 2 3", "2", broken={3: "a"})) == Desired(served=(2,), default=2)
    assert desired(facts("1 2 3", "2", broken={3: "files before"})).load == (3,)


def test_a_version_whose_files_changed_is_loaded_anew_and_served_as_it_was_meanwhile() -> None:
    changed = Present({2: "b"})
    assert desired(facts("", "2", present=changed)).load == (2,)
    refused = desired(facts("", "2", present=changed, broken={2: "b"}))
    assert (refused.load, refused.served) == ((), (2,))


def test_a_version_whose_files_are_changing_stays_served() -> None:
    wanted = desired(facts("1", "1 2", present=Present({1: "a"}, frozenset({2}))))
    assert wanted.served == (2,)
    assert desired(facts(present=Present({}, frozenset({2})))) == Desired()


# --- gone -------------------------------------------------------------------------------------


def test_a_version_that_is_gone_is_let_go_unless_nothing_else_is_left() -> None:
    assert desired(facts("1 2", "1 2 3", deployment=deployment(versions="all"))).served == (1, 2)
    assert desired(facts("", "3")) == Desired(served=(3,), default=3)
    assert desired(facts("2", "3", broken={2: "a"})).served == (3,)
    assert desired(facts("2", "3")).load == (2,)


# --- labels -----------------------------------------------------------------------------------


def test_labelled_versions_are_served_too_and_the_admins_labels_win() -> None:
    told = deployment(labels={"stable": 1, "canary": 3})
    intent = Intent(labels={"stable": 2})
    wanted = desired(facts("1 2 3", deployment=told, intent=intent))
    assert wanted.load == (3, 2)
    assert wanted.labels == {"stable": 2, "canary": 3}


def test_traffic_goes_to_the_default_label_and_to_nobody_while_that_is_not_there() -> None:
    told = deployment(labels={"stable": 1}, traffic=Traffic(default="stable"))
    wanted = desired(facts("1 2", "1 2", deployment=told))
    assert (wanted.default, wanted.default_label) == (1, "stable")
    absent = desired(facts("2", "2", deployment=told))
    assert (absent.default, absent.served, absent.missing) == (None, (2,), (1,))


# --- catching up ------------------------------------------------------------------------------


def behind(event_time: float | None, **changes: object) -> Desired:
    """Version 1 has seen 200 and is served; 2 was loaded and has seen `event_time`."""
    times = {} if event_time is None else {2: ("a", event_time)}
    told = facts(
        "1 2",
        "1",
        loaded={1: loaded(1, 200.0), 2: loaded(2, event_time)},
        event_times=times,
    )
    return desired(replace(told, **changes))  # type: ignore[arg-type]  # of many types


def test_a_newer_version_that_has_seen_less_is_not_switched_to() -> None:
    wanted = behind(199.0)
    assert (wanted.served, wanted.default, wanted.behind) == ((1,), 1, (2,))
    assert behind(199.0, loaded={1: loaded(1, 200.0)}).load == ()


def test_what_has_caught_up_or_does_not_say_is_switched_to() -> None:
    assert behind(200.0).served == (2,)
    assert behind(None).served == (2,)
    assert behind(199.0, loaded={1: loaded(1), 2: loaded(2, 199.0)}).served == (2,)
    assert behind(199.0, loaded={2: loaded(2, 199.0)}).served == (2,)
    assert behind(199.0, default=None).served == (2,)
    assert behind(199.0, event_times={2: ("files before", 199.0)}).served == (2,)


@pytest.mark.parametrize(
    "changes",
    [
        {"deployment": Deployment(catch_up="allow")},
        {"deployment": Deployment(versions=VersionPolicy(specific=(2,)))},
        {"deployment": Deployment(labels={"x": 2})},
        {"intent": Intent(loads=frozenset({2}))},
        {"intent": Intent(hold=Hold(2))},
    ],
)
def test_what_is_asked_for_by_number_need_not_catch_up(changes: dict[str, object]) -> None:
    assert 2 in behind(199.0, **changes).served


# --- people -----------------------------------------------------------------------------------


def test_a_hold_freezes_the_choice() -> None:
    held = facts("1 2 3", "2 3", intent=Intent(hold=Hold(2)), default=3, served=(3,))
    wanted = desired(held)
    assert (wanted.load, wanted.served, wanted.default) == ((), (2,), 2)
    stable = deployment(labels={"stable": 3}, traffic=Traffic(default="stable"))
    labelled = desired(replace(held, deployment=stable))
    assert (labelled.served, labelled.default) == ((2, 3), 2)


def test_where_a_held_version_cannot_be_had_the_next_older_one_answers() -> None:
    intent = Intent(hold=Hold(3))
    wanted = desired(facts("1 2 3 4", "2 4", intent=intent, broken={3: "a"}))
    assert (wanted.served, wanted.default, wanted.missing) == ((2,), 2, (3,))
    assert desired(facts("4", intent=intent)) == Desired(missing=(3,))
    assert desired(facts("4", "3 4", intent=intent)).served == (3,)


def test_versions_can_be_loaded_beyond_the_policy_and_taken_out_of_it() -> None:
    assert desired(facts("1 2 3", "3", intent=Intent(loads=frozenset({1})))).load == (1,)
    out = desired(facts("1 2 3", "3", intent=Intent(unloads=frozenset({3}))))
    assert out == Desired()
    gone = desired(facts("3", "3", intent=Intent(loads=frozenset({9}))))
    assert (gone.served, gone.missing) == ((3,), (9,))


def test_an_unloaded_model_serves_nothing_and_readiness_does_not_wait_for_it() -> None:
    told = deployment(labels={"stable": 3}, traffic=Traffic(default="stable"))
    wanted = desired(facts("3", "3", deployment=told, intent=Intent(unloaded=True)))
    assert wanted == Desired(labels={"stable": 3}, default_label="stable", required=False)


# --- kept for a rollback ----------------------------------------------------------------------


def test_what_answered_last_stays_in_memory() -> None:
    told = facts("1 2 3", "1 2 3", served=(3,), default=3, history=(3, 1, 2))
    assert desired(told).kept == (1,)
    assert desired(replace(told, deployment=deployment(keep_previous=2))).kept == (1, 2)
    assert desired(replace(told, deployment=deployment(keep_previous=0))).kept == ()


def test_what_is_gone_changed_or_unloaded_is_not_kept() -> None:
    told = facts("2 3", "1 2 3", served=(3,), default=3, history=(1, 2))
    assert desired(told).kept == (2,)
    changed = Present({2: "b", 3: "a"})
    assert desired(replace(told, present=changed)).kept == ()
    assert desired(replace(told, intent=Intent(unloads=frozenset({2})))).kept == ()


# --- who names a version ------------------------------------------------------------------------


def test_whoever_names_a_version_is_told_of() -> None:
    told = facts(
        "1",
        deployment=deployment(versions=VersionPolicy(specific=(9,)), labels={"b": 9, "c": 1}),
        intent=Intent(hold=Hold(9), labels={"a": 9, "b": 8}, loads=frozenset({9})),
    )

    assert namers(9, told) == (
        "label 'a'",
        "versions.specific in serving.yaml",
        "the hold of a rollback",
        "a load by number",
    )
    assert namers(8, told) == ("label 'b'",)
    assert namers(7, told) == ()
