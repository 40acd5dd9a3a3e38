"""Plans of deltas that were served before."""

from itertools import pairwise

from anabranch_server.processes.plans import RowPlan, VersionPlan
from anabranch_server.supervisor.keeper_retained import RetainedPlans


def plan(delta: int, version: int = 1, identity: str = "a") -> VersionPlan:
    return VersionPlan(
        "m", version, delta, identity, "p", (), (), RowPlan(True, 1, (), (), "", True), (), "",
        (), 5, 100,
    )  # fmt: skip


def serve(retained: RetainedPlans, *deltas: int, keep: int = 2) -> None:
    for before, now in pairwise(deltas):
        retained.switch({1: plan(before)}, {1: plan(now)}, keep)


def test_as_many_are_retained_as_were_served_last() -> None:
    retained = RetainedPlans()
    serve(retained, 0, 1, 4, 5)
    assert retained.deltas(1) == (1, 4)
    assert retained.at(plan(5), 4) == plan(4)
    assert retained.at(plan(5), 0) is None
    assert retained.at(plan(5), 3) is None


def test_a_rollback_retains_what_it_came_from() -> None:
    retained = RetainedPlans()
    serve(retained, 3, 4, 5, 3)
    assert retained.deltas(1) == (4, 5)
    assert retained.before(plan(3), 9) == plan(5)


def test_every_delta_can_be_come_to_from_the_version_as_published() -> None:
    retained = RetainedPlans()
    retained.publish(plan(0))
    serve(retained, 0, 4, 5, keep=1)
    assert retained.before(plan(5), 3) == plan(0)
    assert retained.before(plan(5), 4) == plan(4)
    assert {one.delta for one in retained.plans} == {0, 4}
    assert RetainedPlans().before(plan(5), 3) is None


def test_what_was_made_of_other_files_is_forgotten() -> None:
    retained = RetainedPlans()
    retained.publish(plan(0))
    serve(retained, 0, 1)
    assert retained.at(plan(1, identity="b"), 0) is None
    retained.switch({1: plan(1)}, {1: plan(0, identity="b")}, 2)
    assert list(retained.plans) == []


def test_a_version_that_leaves_takes_its_plans_along() -> None:
    retained = RetainedPlans()
    retained.publish(plan(0))
    serve(retained, 0, 1, 2)
    retained.switch({1: plan(2)}, {2: plan(0, version=2)}, 2)
    assert list(retained.plans) == []
    retained.publish(plan(0))
    serve(retained, 0, 1)
    retained.forget(1)
    assert list(retained.plans) == []


def test_a_version_that_is_about_to_come_stays_as_it_was_published() -> None:
    retained = RetainedPlans()
    coming = plan(0, version=2)
    retained.publish(plan(0))
    retained.publish(coming)
    retained.switch({1: plan(0)}, {1: plan(1)}, 2, {2: plan(3, version=2)})
    assert retained.at(plan(3, version=2), 0) == coming
    retained.switch({1: plan(1)}, {1: plan(2)}, 2)
    assert retained.at(plan(3, version=2), 0) is None
